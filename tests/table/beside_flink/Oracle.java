import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.ExplainDetail;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;

/**
 * Runs SQL programs on a Flink cluster in this process. Each line of the input is a program, each line of the output
 * its answer, both JSON. Tables with the connector `oracle` read the program's rows and keep the rows that arrive.
 */
public final class Oracle {
    /** A row that a table gives: its kind, its values as JSON, and when it comes, counted in pauses. */
    record Change(String kind, byte[] json, int turn) {}

    /** The rows of the running program by table. */
    static final Map<String, List<Change>> GIVEN = new ConcurrentHashMap<>();

    /** What has arrived by table, as Flink writes rows. */
    static final Map<String, List<String>> ARRIVED = new ConcurrentHashMap<>();

    /** Whether the running program is a batch. */
    static volatile boolean isBatch;

    static final ObjectMapper MAPPER = new ObjectMapper();

    /** When the first source of the running program began, and how long a turn is. */
    private static long began;

    private static long pause;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        Configuration settings = new Configuration();
        settings.setString("rest.port", "0");
        settings.setString("taskmanager.memory.network.min", "128m");
        settings.setString("taskmanager.memory.network.max", "128m");
        settings.setString("taskmanager.memory.managed.size", "256m");
        MiniClusterConfiguration.Builder builder =
                new MiniClusterConfiguration.Builder()
                        .setConfiguration(settings)
                        .setNumTaskManagers(1)
                        .setNumSlotsPerTaskManager(4);
        MiniCluster cluster = new MiniCluster(builder.build());
        cluster.start();
        int port = cluster.getRestAddress().get().getPort();
        BufferedReader programs = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = programs.readLine(); line != null; line = programs.readLine()) {
            answers.println(MAPPER.writeValueAsString(answer(MAPPER.readTree(line), port)));
            answers.flush();
        }
        cluster.close();
        System.exit(0);
    }

    private static Map<String, Object> answer(JsonNode program, int port) {
        Map<String, Object> answer = new HashMap<>();
        ARRIVED.clear();
        GIVEN.clear();
        synchronized (Oracle.class) {
            began = 0;
            pause = program.get("pause_ms").asLong();
        }
        isBatch = program.get("batch").asBoolean();
        TableResult running = null;
        try {
            for (Map.Entry<String, JsonNode> table : program.get("rows").properties()) {
                List<Change> rows = new ArrayList<>();
                for (JsonNode row : table.getValue()) {
                    byte[] json = MAPPER.writeValueAsBytes(row.get(1));
                    rows.add(new Change(row.get(0).asText(), json, row.get(2).asInt()));
                }
                GIVEN.put(table.getKey(), rows);
            }
            TableEnvironment tables = environment(program, port);
            for (JsonNode text : program.get("setup")) {
                tables.executeSql(text.asText());
            }
            List<String> plans = new ArrayList<>();
            StatementSet together = tables.createStatementSet();
            boolean isTogether = program.get("statements").size() > 1;
            for (JsonNode text : program.get("statements")) {
                if (program.get("explains").asBoolean()) {
                    plans.add(tables.explainSql(text.asText(), ExplainDetail.CHANGELOG_MODE));
                } else if (isTogether) {
                    together.addInsertSql(text.asText());
                } else {
                    running = tables.executeSql(text.asText());
                }
            }
            running = isTogether && plans.isEmpty() ? together.execute() : running;
            if (running != null) {
                running.await(program.get("patience_s").asLong(), TimeUnit.SECONDS);
            }
            answer.put("plans", plans);
        } catch (Throwable error) {
            answer.put("error", messages(error));
            if (running != null && running.getJobClient().isPresent()) {
                running.getJobClient().get().cancel();
            }
        }
        Map<String, List<String>> sinks = new HashMap<>();
        ARRIVED.forEach((name, rows) -> sinks.put(name, new ArrayList<>(rows)));
        answer.put("sinks", sinks);
        return answer;
    }

    private static TableEnvironment environment(JsonNode program, int port) {
        Configuration configuration = new Configuration();
        configuration.setString("execution.target", "remote");
        configuration.setString("rest.address", "localhost");
        configuration.setString("rest.port", Integer.toString(port));
        configuration.setString("client.retry-period", "20 ms");
        configuration.setString("parallelism.default", "1");
        configuration.setString("restart-strategy.type", "disable");
        configuration.setString("pipeline.auto-watermark-interval", "20 ms");
        for (Map.Entry<String, JsonNode> option : program.get("config").properties()) {
            configuration.setString(option.getKey(), option.getValue().asText());
        }
        EnvironmentSettings.Builder settings = EnvironmentSettings.newInstance().withConfiguration(configuration);
        return TableEnvironment.create(isBatch ? settings.inBatchMode().build() : settings.inStreamingMode().build());
    }

    private static String messages(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            text.append(cause.getClass().getSimpleName()).append(": ").append(cause.getMessage()).append('\n');
        }
        return text.toString();
    }

    /** Wait for a turn. The first one begins when a source first asks. */
    static void await(int turn) throws InterruptedException {
        long due;
        synchronized (Oracle.class) {
            began = began == 0 ? System.currentTimeMillis() : began;
            due = began + turn * pause;
        }
        Thread.sleep(Math.max(0, due - System.currentTimeMillis()));
    }

    private Oracle() {}
}
