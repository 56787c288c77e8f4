import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * Evaluates expressions of SQL. Each line of the input is a list of them, each line of the output their answers, both
 * JSON: `["value", text, type]`, `["refused", why]` where an expression cannot be planned, `["failed", why]`.
 */
public final class Expressions {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private static TableEnvironment tables;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        tables = TableEnvironment.create(EnvironmentSettings.inBatchMode());
        tables.getConfig().set("parallelism.default", "1");
        tables.getConfig().set("table.local-time-zone", arguments[0]);
        BufferedReader lists = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lists.readLine(); line != null; line = lists.readLine()) {
            List<String> expressions = new ArrayList<>();
            MAPPER.readTree(line).forEach((JsonNode one) -> expressions.add(one.asText()));
            answers.println(MAPPER.writeValueAsString(answersOf(expressions)));
        }
        System.exit(0);
    }

    private static Object[] answersOf(List<String> expressions) {
        Object[] found = new Object[expressions.size()];
        List<Integer> planned = new ArrayList<>();
        for (int index = 0; index < found.length; index++) {
            try {
                tables.sqlQuery("SELECT " + selected(expressions.get(index)));
                planned.add(index);
            } catch (Throwable error) {
                found[index] = List.of("refused", reason(error));
            }
        }
        run(expressions, planned, found);
        return found;
    }

    /** One query for all; where it fails, one for each half, until it is known which of them fails. */
    private static void run(List<String> expressions, List<Integer> planned, Object[] found) {
        if (planned.isEmpty()) {
            return;
        }
        List<String> columns = new ArrayList<>();
        planned.forEach(index -> columns.add(selected(expressions.get(index))));
        try (CloseableIterator<Row> rows = tables.executeSql("SELECT " + String.join(", ", columns)).collect()) {
            Row row = rows.next();
            for (int place = 0; place < planned.size(); place++) {
                found[planned.get(place)] = Arrays.asList("value", row.getField(2 * place), row.getField(2 * place + 1));
            }
        } catch (Throwable error) {
            if (planned.size() == 1) {
                found[planned.get(0)] = List.of("failed", reason(error));
                return;
            }
            int half = planned.size() / 2;
            run(expressions, planned.subList(0, half), found);
            run(expressions, planned.subList(half, planned.size()), found);
        }
    }

    private static String selected(String expression) {
        return "CAST((" + expression + ") AS STRING), TYPEOF(" + expression + ")";
    }

    private static String reason(Throwable error) {
        Throwable cause = error;
        while (cause.getCause() != null && cause.getCause() != cause) {
            cause = cause.getCause();
        }
        return cause.getClass().getSimpleName() + ": " + cause.getMessage();
    }

    private Expressions() {}
}
