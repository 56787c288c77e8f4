package penstock.nexmark;

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.stream.Stream;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.client.deployment.executors.PipelineExecutorUtils;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.PipelineExecutor;
import org.apache.flink.core.execution.PipelineExecutorFactory;
import org.apache.flink.core.execution.PipelineExecutorServiceLoader;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.checkpoint.CheckpointStatsSnapshot;
import org.apache.flink.runtime.checkpoint.CompletedCheckpointStats;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.runtime.minicluster.MiniClusterJobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.functions.ScalarFunction;

/**
 * Runs one query of Nexmark in Flink SQL, on a cluster in this process that is up before time counts.
 *
 * <p>Arguments: a file of statements, the last of which is the INSERT, parted by NUL; a file of settings, one
 * "key: value" a line. Then a line of standard input is a command, and is answered by a line that begins with
 * "nexmark": "run N R" runs the INSERT over the first N events, R of them a second, or as many as possible if R is 0,
 * and is answered by a JSON object; "state DIRECTORY" runs it over all events and, behind the last, takes a savepoint.
 */
public final class Bench {
    private Bench() {}

    public static void main(String[] arguments) throws Exception {
        String[] statements = Files.readString(Path.of(arguments[0])).split("\0");
        Configuration settings = new Configuration();
        for (String line : Files.readAllLines(Path.of(arguments[1]))) {
            settings.setString(line.substring(0, line.indexOf(": ")), line.substring(line.indexOf(": ") + 2));
        }
        String insert = statements[statements.length - 1];
        try (Cluster cluster = new Cluster(settings)) {
            StreamTableEnvironment tables = cluster.tables();
            for (int index = 0; index < statements.length - 1; index++) {
                tables.executeSql(statements[index]);
            }
            // Translation reads the events.
            tables.explainSql(insert);
            answer("ready");
            BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
            for (String command = commands.readLine(); command != null; command = commands.readLine()) {
                String[] words = command.split(" ");
                if (words[0].equals("run")) {
                    EventTable.begin(Long.parseLong(words[1]), Long.parseLong(words[2]), false);
                    answer(timed(cluster, tables, insert));
                } else {
                    EventTable.begin(Long.MAX_VALUE, 0, true);
                    answer(state(tables, insert, words[1]));
                }
            }
        } catch (Throwable error) {
            Throwable cause = error;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            String message = String.valueOf(cause.getMessage()).replace('\n', ' ');
            answer("refused " + cause.getClass().getSimpleName() + ": " + message);
        }
        System.exit(0);
    }

    private static void answer(String line) {
        System.out.println("nexmark " + line);
        System.out.flush();
    }

    /** Seconds from execution to the job's end, and of processor time of this process; its checkpoints; latencies. */
    private static String timed(Cluster cluster, StreamTableEnvironment tables, String insert) throws Exception {
        System.gc();
        LatencyTable.clear();
        long begin = System.nanoTime();
        long cpu = processorNanos();
        TableResult result = tables.executeSql(insert);
        result.await();
        double wall = (System.nanoTime() - begin) / 1e9;
        double used = (processorNanos() - cpu) / 1e9;
        CheckpointStatsSnapshot checkpoints = cluster.checkpoints(result.getJobClient().get().getJobID());
        CompletedCheckpointStats last = checkpoints.getHistory().getLatestCompletedCheckpoint();
        return String.format(
                Locale.ROOT,
                "{\"wall_s\": %f, \"cpu_s\": %f, \"checkpoints\": %d, \"checkpoint_bytes\": %d, "
                        + "\"latencies_ms\": %s}",
                wall,
                used,
                checkpoints.getCounts().getNumberOfCompletedCheckpoints(),
                last == null ? 0 : last.getStateSize(),
                LatencyTable.percentiles());
    }

    /** Takes a savepoint behind all events. Bytes that are live on the heap then, beyond the events. */
    private static String state(StreamTableEnvironment tables, String insert, String directory) throws Exception {
        long before = liveBytes();
        TableResult result = tables.executeSql(insert);
        JobClient job = result.getJobClient().get();
        EventTable.awaitAllOut();
        job.triggerSavepoint(directory, SavepointFormatType.CANONICAL).get();
        long live = liveBytes() - before;
        job.cancel().get();
        return String.valueOf(live);
    }

    private static long liveBytes() {
        System.gc();
        return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
    }

    private static long processorNanos() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    /** The benchmark's function: how often a character is in a text. */
    public static final class CountChar extends ScalarFunction {
        public long eval(String text, String character) {
            char wanted = character.charAt(0);
            long count = 0;
            for (int index = 0; index < text.length(); index++) {
                count += text.charAt(index) == wanted ? 1 : 0;
            }
            return count;
        }
    }

    // ---- The cluster -----------------------------------------------------------------------------------------------

    /** A cluster that stays up from job to job, which Flink's own local executor starts for each. */
    private static final class Cluster
            implements PipelineExecutorServiceLoader, PipelineExecutorFactory, AutoCloseable {
        private final Configuration settings;
        private final MiniCluster cluster;

        Cluster(Configuration settings) throws Exception {
            this.settings = settings;
            settings.setString("execution.target", getName());
            settings.set(TaskManagerOptions.MANAGED_MEMORY_SIZE, MemorySize.ofMebiBytes(512));
            settings.set(TaskManagerOptions.NETWORK_MEMORY_MIN, MemorySize.ofMebiBytes(64));
            settings.set(TaskManagerOptions.NETWORK_MEMORY_MAX, MemorySize.ofMebiBytes(64));
            MiniClusterConfiguration.Builder builder = new MiniClusterConfiguration.Builder();
            builder.setConfiguration(settings).setNumSlotsPerTaskManager(1).withRandomPorts();
            cluster = new MiniCluster(builder.build());
            cluster.start();
        }

        StreamTableEnvironment tables() {
            ClassLoader loader = Bench.class.getClassLoader();
            StreamExecutionEnvironment environment = new StreamExecutionEnvironment(this, settings, loader);
            environment.setRuntimeMode(RuntimeExecutionMode.STREAMING);
            return StreamTableEnvironment.create(environment);
        }

        /** The checkpoints of a job that is over. */
        CheckpointStatsSnapshot checkpoints(JobID job) throws Exception {
            return cluster.getArchivedExecutionGraph(job).get().getCheckpointStatsSnapshot();
        }

        @Override
        public PipelineExecutorFactory getExecutorFactory(Configuration configuration) {
            return this;
        }

        @Override
        public Stream<String> getExecutorNames() {
            return Stream.of(getName());
        }

        @Override
        public String getName() {
            return "bench";
        }

        @Override
        public boolean isCompatibleWith(Configuration configuration) {
            return true;
        }

        @Override
        public PipelineExecutor getExecutor(Configuration ignored) {
            return (pipeline, configuration, loader) -> {
                StreamGraph graph = PipelineExecutorUtils.getStreamGraph(pipeline, configuration);
                return cluster.submitJob(graph).thenApply(submitted -> client(submitted.getJobID(), loader));
            };
        }

        private JobClient client(JobID job, ClassLoader loader) {
            return new MiniClusterJobClient(
                    job, cluster, loader, MiniClusterJobClient.JobFinalizationBehavior.NOTHING);
        }

        @Override
        public void close() throws Exception {
            cluster.closeAsync().get();
        }
    }
}
