import java.io.BufferedReader;
import java.io.FileReader;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;

/** Runs the steps of a file through Flink's JDBC driver, and prints a line for everything that a program sees. */
public class JdbcProgram {
    private static Connection connection;

    public static void main(String[] arguments) throws Exception {
        connection = DriverManager.getConnection(arguments[0]);
        BufferedReader steps = new BufferedReader(new FileReader(arguments[1]));
        String line = steps.readLine();
        while (line != null) {
            if (line.length() > 0 && !line.startsWith("#")) {
                System.out.println("> " + line);
                try {
                    run(line);
                } catch (Throwable error) {
                    printError(error);
                }
                System.out.flush();
            }
            line = steps.readLine();
        }
        steps.close();
        connection.close();
        System.out.println("closed " + connection.isClosed());
    }

    private static void run(String line) throws Exception {
        int space = line.indexOf(' ');
        String step = space < 0 ? line : line.substring(0, space);
        String rest = space < 0 ? "" : line.substring(space + 1).replace("\\n", "\n");
        if (step.equals("execute")) {
            Statement statement = connection.createStatement();
            boolean hasRows = statement.execute(rest);
            System.out.println("execute " + hasRows);
            if (hasRows) {
                printRows(statement.getResultSet(), Integer.MAX_VALUE);
            }
            statement.close();
        } else if (step.equals("run")) { // leaves out the rows, which differ from run to run
            Statement statement = connection.createStatement();
            System.out.println("run " + statement.execute(rest));
            statement.close();
        } else if (step.equals("query")) {
            Statement statement = connection.createStatement();
            printRows(statement.executeQuery(rest), Integer.MAX_VALUE);
            statement.close();
        } else if (step.equals("first")) { // a stream without an end: some rows, then the end of the statement
            Statement statement = connection.createStatement();
            int end = rest.indexOf(' ');
            printRows(statement.executeQuery(rest.substring(end + 1)), Integer.parseInt(rest.substring(0, end)));
            statement.close();
        } else if (step.equals("getters")) {
            printGetters(rest);
        } else if (step.equals("catalog")) {
            connection.setCatalog(rest);
            System.out.println(connection.getCatalog());
        } else if (step.equals("schema")) {
            connection.setSchema(rest);
            System.out.println(connection.getSchema());
        } else if (step.equals("client")) {
            System.out.println(rest + " = " + connection.getClientInfo(rest));
        } else if (step.equals("metadata")) {
            printMetadata(connection.getMetaData());
        } else if (step.equals("two")) { // two open results at a time
            Statement one = connection.createStatement();
            Statement other = connection.createStatement();
            ResultSet first = one.executeQuery(rest);
            ResultSet second = other.executeQuery(rest);
            while (first.next() && second.next()) {
                System.out.println(first.getObject(1) + " " + second.getObject(1));
            }
            one.close();
            other.close();
        } else {
            throw new IllegalArgumentException(step);
        }
    }

    private static void printRows(ResultSet rows, int limit) throws SQLException {
        ResultSetMetaData columns = rows.getMetaData();
        StringBuilder head = new StringBuilder("columns");
        for (int index = 1; index <= columns.getColumnCount(); index++) {
            head.append(" | ").append(columns.getColumnName(index)).append(' ').append(columns.getColumnTypeName(index));
            head.append(' ').append(columns.getColumnType(index)).append(' ').append(columns.isNullable(index));
            head.append(' ').append(columns.getPrecision(index)).append(' ').append(columns.getScale(index));
        }
        System.out.println(head);
        int count = 0;
        while (count < limit && rows.next()) {
            StringBuilder row = new StringBuilder("row");
            for (int index = 1; index <= columns.getColumnCount(); index++) {
                row.append(" | ").append(show(rows.getObject(index)));
            }
            if (count < 20) {
                System.out.println(row);
            }
            count++;
        }
        rows.close();
        System.out.println("rows " + count);
    }

    private static void printGetters(String query) throws SQLException {
        Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery(query);
        if (rows.next()) {
            for (int index = 1; index <= rows.getMetaData().getColumnCount(); index++) {
                for (int getter = 0; getter < 12; getter++) {
                    String found;
                    try {
                        found = show(get(rows, index, getter)) + (rows.wasNull() ? " null" : "");
                    } catch (Throwable error) {
                        found = error.getClass().getName();
                    }
                    System.out.println("column " + index + " getter " + getter + " " + found);
                }
            }
        }
        rows.close();
        statement.close();
    }

    private static Object get(ResultSet rows, int index, int getter) throws SQLException {
        switch (getter) {
            case 0: return rows.getObject(index);
            case 1: return rows.getString(index);
            case 2: return Boolean.valueOf(rows.getBoolean(index));
            case 3: return Byte.valueOf(rows.getByte(index));
            case 4: return Short.valueOf(rows.getShort(index));
            case 5: return Integer.valueOf(rows.getInt(index));
            case 6: return Long.valueOf(rows.getLong(index));
            case 7: return Float.valueOf(rows.getFloat(index));
            case 8: return Double.valueOf(rows.getDouble(index));
            case 9: return rows.getBigDecimal(index);
            case 10: return rows.getBytes(index);
            default: return rows.getTimestamp(index);
        }
    }

    private static void printMetadata(DatabaseMetaData metadata) throws SQLException {
        System.out.println(metadata.getDatabaseProductName() + " " + metadata.getDatabaseProductVersion());
        System.out.println(metadata.getDriverName() + " " + metadata.getDriverVersion());
        ResultSet catalogs = metadata.getCatalogs();
        while (catalogs.next()) {
            System.out.println("catalog " + catalogs.getString(1));
        }
        ResultSet schemas = metadata.getSchemas();
        while (schemas.next()) {
            System.out.println("schema " + schemas.getString(1) + " of " + schemas.getString(2));
        }
    }

    private static String show(Object value) {
        if (value == null) {
            return "null";
        }
        if (value instanceof byte[]) {
            StringBuilder text = new StringBuilder("bytes");
            byte[] bytes = (byte[]) value;
            for (int index = 0; index < bytes.length; index++) {
                text.append(' ').append(bytes[index]);
            }
            return text.toString();
        }
        return value.getClass().getSimpleName() + " " + value;
    }

    private static void printError(Throwable error) {
        System.out.println("error " + error.getClass().getName() + ": " + withoutIds(error.getMessage()));
        Throwable last = error;
        while (last.getCause() != null && last.getCause() != last) {
            last = last.getCause();
        }
        String text = String.valueOf(last.getMessage());
        int begin = text.lastIndexOf("Caused by: ");
        if (begin >= 0) {
            int end = text.indexOf('\n', begin);
            System.out.println("cause " + withoutIds(text.substring(begin + 11, end < 0 ? text.length() : end)));
        }
    }

    private static String withoutIds(String text) {
        return String.valueOf(text).replaceAll("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>")
                .replaceAll("[0-9a-f]{32}", "<job>");
    }
}
