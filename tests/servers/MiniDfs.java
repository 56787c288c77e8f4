import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A name node and a data node on loopback: `java -cp 'lib/*' MiniDfs.java WEB_PORT RPC_PORT FOLDER`. */
public class MiniDfs {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set("hdfs.minidfs.basedir", arguments[2]);
        configuration.setBoolean("dfs.permissions.enabled", false);
        configuration.set("dfs.datanode.hostname", "127.0.0.1");
        configuration.set("dfs.client.use.datanode.hostname", "true");
        new MiniDFSCluster.Builder(configuration)
            .numDataNodes(1)
            .nameNodeHttpPort(Integer.parseInt(arguments[0]))
            .nameNodePort(Integer.parseInt(arguments[1]))
            .build()
            .waitActive();
        Thread.currentThread().join();
    }
}
