package penstock.nexmark;

import java.util.Arrays;
import java.util.Set;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.sink.SinkV2Provider;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.types.RowKind;

/**
 * 'connector' = 'nexmark-latency': keeps no row, but how long ago its event was due.
 *
 * <p>'column' is the position of the event's time; 'first' is the time of the first event, in ms. At a steady rate the
 * events' own times pass as fast as the clock. Rows of the first second do not count.
 */
public final class LatencyTable {
    private static final int WARM_UP_MS = 1_000;

    private static int[] latencies = new int[1 << 16];
    private static int count;

    private LatencyTable() {}

    static void clear() {
        count = 0;
    }

    /** The median and the 99th percentile in ms, as a JSON array; null without a row. */
    static String percentiles() {
        if (count == 0) {
            return "null";
        }
        int[] sorted = Arrays.copyOf(latencies, count);
        Arrays.sort(sorted);
        return "[" + sorted[(count - 1) / 2] + ", " + sorted[(int) ((count - 1) * 0.99)] + "]";
    }

    private static void add(long latency) {
        if (count == latencies.length) {
            latencies = Arrays.copyOf(latencies, 2 * count);
        }
        latencies[count++] = (int) latency;
    }

    public static final class Factory implements DynamicTableSinkFactory {
        private static final ConfigOption<Integer> COLUMN = ConfigOptions.key("column").intType().noDefaultValue();
        private static final ConfigOption<Long> FIRST = ConfigOptions.key("first").longType().noDefaultValue();

        @Override
        public String factoryIdentifier() {
            return "nexmark-latency";
        }

        @Override
        public Set<ConfigOption<?>> requiredOptions() {
            return Set.of(COLUMN, FIRST);
        }

        @Override
        public Set<ConfigOption<?>> optionalOptions() {
            return Set.of();
        }

        @Override
        public DynamicTableSink createDynamicTableSink(Context context) {
            FactoryUtil.TableFactoryHelper helper = FactoryUtil.createTableFactoryHelper(this, context);
            helper.validate();
            return new Table(helper.getOptions().get(COLUMN), helper.getOptions().get(FIRST));
        }
    }

    private record Table(int column, long first) implements DynamicTableSink {
        @Override
        public ChangelogMode getChangelogMode(ChangelogMode requested) {
            ChangelogMode.Builder accepted = ChangelogMode.newBuilder();
            requested.getContainedKinds().stream()
                    .filter(kind -> kind != RowKind.UPDATE_BEFORE)
                    .forEach(accepted::addContainedKind);
            return accepted.build();
        }

        @Override
        public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
            return SinkV2Provider.of(new Latencies(column, first));
        }

        @Override
        public DynamicTableSink copy() {
            return this;
        }

        @Override
        public String asSummaryString() {
            return "nexmark-latency";
        }
    }

    private record Latencies(int column, long first) implements Sink<RowData> {
        @Override
        public SinkWriter<RowData> createWriter(WriterInitContext context) {
            return new Writer(column, first);
        }
    }

    private record Writer(int column, long first) implements SinkWriter<RowData> {
        @Override
        public void write(RowData row, Context context) {
            if (row.getRowKind() == RowKind.DELETE) {
                return;
            }
            long dueMs = row.getTimestamp(column, 3).getMillisecond() - first;
            if (dueMs >= WARM_UP_MS) {
                add(System.currentTimeMillis() - EventTable.begunMs() - dueMs);
            }
        }

        @Override
        public void flush(boolean endOfInput) {}

        @Override
        public void close() {}
    }
}
