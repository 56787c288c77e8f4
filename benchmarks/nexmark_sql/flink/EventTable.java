package penstock.nexmark;

import java.io.FileInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.api.python.shaded.org.apache.arrow.vector.complex.StructVector;
import org.apache.flink.api.python.shaded.org.apache.arrow.vector.ipc.ArrowFileReader;
import org.apache.flink.api.python.shaded.org.apache.arrow.vector.ValueVector;
import org.apache.flink.api.python.shaded.org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.ProviderContext;
import org.apache.flink.table.connector.source.abilities.SupportsProjectionPushDown;
import org.apache.flink.table.connector.source.abilities.SupportsWatermarkPushDown;
import org.apache.flink.table.connector.source.DataStreamScanProvider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.data.columnar.vector.ColumnVector;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.runtime.arrow.ArrowReader;
import org.apache.flink.table.runtime.arrow.ArrowUtils;
import org.apache.flink.table.runtime.typeutils.RowDataSerializer;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.RowType;

/** 'connector' = 'nexmark-arrow': the events of an Arrow file, which are in memory as rows before time counts. */
public final class EventTable {
    /** Events that a poll of the source hands over. */
    private static final int POLLED = 256;
    /** Wakes a reader that has handed over all events that are due. */
    private static final Executor SOON = CompletableFuture.delayedExecutor(1, TimeUnit.MILLISECONDS);

    /** Rows by the file and the columns that a query reads. */
    private static final Map<String, List<RowData[]>> HELD = new ConcurrentHashMap<>();

    private static volatile long limit = Long.MAX_VALUE;
    /** Events a second; 0 for as many as possible. */
    private static volatile long perSecond;
    /** When the first event was due, in ms since the epoch. */
    private static volatile long begunMs;
    /** Where the source says that all events are out, and stays; null where it ends. */
    private static volatile CountDownLatch allOut;

    private EventTable() {}

    /** How events come in the next job. */
    static void begin(long events, long eventsPerSecond, boolean stays) {
        limit = events;
        perSecond = eventsPerSecond;
        allOut = stays ? new CountDownLatch(1) : null;
    }

    static void awaitAllOut() throws InterruptedException {
        allOut.await();
    }

    static long begunMs() {
        return begunMs;
    }

    /** Reads the columns at the paths of the file's Arrow columns, as rows on the heap, a list for each batch. */
    private static List<RowData[]> batches(String file, int[][] paths, RowType type) {
        List<RowData[]> batches = new ArrayList<>();
        RowDataSerializer serializer = new RowDataSerializer(type);
        try (FileInputStream stream = new FileInputStream(file);
                ArrowFileReader reader = new ArrowFileReader(stream.getChannel(), ArrowUtils.getRootAllocator())) {
            VectorSchemaRoot root = reader.getVectorSchemaRoot();
            while (reader.loadNextBatch()) {
                ArrowReader columns = new ArrowReader(vectors(root, paths, type));
                RowData[] rows = new RowData[root.getRowCount()];
                for (int row = 0; row < rows.length; row++) {
                    rows[row] = serializer.toBinaryRow(columns.read(row), true);
                }
                batches.add(rows);
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return batches;
    }

    private static ColumnVector[] vectors(VectorSchemaRoot root, int[][] paths, RowType type) {
        ColumnVector[] vectors = new ColumnVector[paths.length];
        for (int column = 0; column < paths.length; column++) {
            ValueVector vector = root.getVector(paths[column][0]);
            for (int depth = 1; depth < paths[column].length; depth++) {
                // A part of a row that is NULL is NULL in the file, too.
                vector = (ValueVector) ((StructVector) vector).getChildByOrdinal(paths[column][depth]);
            }
            vectors[column] = ArrowUtils.createColumnVector(vector, type.getTypeAt(column));
        }
        return vectors;
    }

    /** Of all columns only those come that are read. */
    public static final class Factory implements DynamicTableSourceFactory {
        private static final ConfigOption<String> PATH = ConfigOptions.key("path").stringType().noDefaultValue();

        @Override
        public String factoryIdentifier() {
            return "nexmark-arrow";
        }

        @Override
        public Set<ConfigOption<?>> requiredOptions() {
            return Set.of(PATH);
        }

        @Override
        public Set<ConfigOption<?>> optionalOptions() {
            return Set.of();
        }

        @Override
        public DynamicTableSource createDynamicTableSource(Context context) {
            FactoryUtil.TableFactoryHelper helper = FactoryUtil.createTableFactoryHelper(this, context);
            helper.validate();
            DataType type = context.getPhysicalRowDataType();
            int[][] all = new int[DataType.getFieldCount(type)][];
            for (int column = 0; column < all.length; column++) {
                all[column] = new int[] {column};
            }
            return new Table(helper.getOptions().get(PATH), all, type, WatermarkStrategy.noWatermarks());
        }
    }

    private static final class Table
            implements ScanTableSource, SupportsProjectionPushDown, SupportsWatermarkPushDown {
        private final String file;
        private int[][] paths;
        private DataType type;
        private WatermarkStrategy<RowData> watermarks;

        Table(String file, int[][] paths, DataType type, WatermarkStrategy<RowData> watermarks) {
            this.file = file;
            this.paths = paths;
            this.type = type;
            this.watermarks = watermarks;
        }

        @Override
        public void applyWatermark(WatermarkStrategy<RowData> strategy) {
            watermarks = strategy;
        }

        @Override
        public boolean supportsNestedProjection() {
            return true;
        }

        @Override
        public void applyProjection(int[][] projected, DataType produced) {
            paths = projected;
            type = produced;
        }

        @Override
        public ChangelogMode getChangelogMode() {
            return ChangelogMode.insertOnly();
        }

        @Override
        public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
            String key = file + Arrays.deepToString(paths);
            RowType row = (RowType) type.getLogicalType();
            HELD.computeIfAbsent(key, ignored -> batches(file, paths, row));
            TypeInformation<RowData> rows = context.createTypeInformation(type);
            WatermarkStrategy<RowData> strategy = watermarks;
            return new DataStreamScanProvider() {
                @Override
                public DataStream<RowData> produceDataStream(
                        ProviderContext provided, StreamExecutionEnvironment environment) {
                    return environment.fromSource(new Events(key), strategy, "events", rows);
                }

                @Override
                public boolean isBounded() {
                    return true;
                }
            };
        }

        @Override
        public DynamicTableSource copy() {
            return new Table(file, paths, type, watermarks);
        }

        @Override
        public String asSummaryString() {
            return "nexmark-arrow";
        }
    }

    /** No part of the events: one reader has them all. */
    private record Part(String splitId) implements SourceSplit {}

    /** The events that are held, in order, for one reader. */
    private record Events(String key) implements Source<RowData, Part, Void> {
        @Override
        public Boundedness getBoundedness() {
            return Boundedness.BOUNDED;
        }

        @Override
        public SourceReader<RowData, Part> createReader(SourceReaderContext context) {
            return new Reader(HELD.get(key));
        }

        @Override
        public SplitEnumerator<Part, Void> createEnumerator(SplitEnumeratorContext<Part> context) {
            return new NoParts();
        }

        @Override
        public SplitEnumerator<Part, Void> restoreEnumerator(SplitEnumeratorContext<Part> context, Void state) {
            return new NoParts();
        }

        @Override
        public SimpleVersionedSerializer<Part> getSplitSerializer() {
            return new Nothing<>();
        }

        @Override
        public SimpleVersionedSerializer<Void> getEnumeratorCheckpointSerializer() {
            return new Nothing<>();
        }
    }

    private static final class Reader implements SourceReader<RowData, Part> {
        private final List<RowData[]> batches;
        private final long stop = limit;
        private final long rate = perSecond;
        private long begunNanos;
        private long done;
        private int number;
        private int next;

        Reader(List<RowData[]> batches) {
            this.batches = batches;
        }

        @Override
        public InputStatus pollNext(ReaderOutput<RowData> output) {
            if (isOver()) {
                if (allOut == null) {
                    return InputStatus.END_OF_INPUT;
                }
                allOut.countDown();
                return InputStatus.NOTHING_AVAILABLE;
            }
            RowData[] batch = batches.get(number);
            int end = (int) Math.min(Math.min(next + POLLED, batch.length), next + due());
            done += end - next;
            for (; next < end; next++) {
                output.collect(batch[next]);
            }
            if (next == batch.length) {
                number++;
                next = 0;
            }
            return rate > 0 && !isOver() && due() == 0 ? InputStatus.NOTHING_AVAILABLE : InputStatus.MORE_AVAILABLE;
        }

        private boolean isOver() {
            return number == batches.size() || done >= stop;
        }

        /** How many events may come now. */
        private long due() {
            if (rate == 0) {
                return stop - done;
            }
            if (begunNanos == 0) {
                begunNanos = System.nanoTime();
                begunMs = System.currentTimeMillis();
            }
            // The first is due at once.
            long all = (long) ((System.nanoTime() - begunNanos) / 1e9 * rate) + 1;
            return Math.max(Math.min(all, stop) - done, 0);
        }

        @Override
        public CompletableFuture<Void> isAvailable() {
            if (isOver()) {
                return allOut != null ? new CompletableFuture<>() : CompletableFuture.completedFuture(null);
            }
            return rate > 0 ? CompletableFuture.runAsync(() -> {}, SOON) : CompletableFuture.completedFuture(null);
        }

        @Override
        public void start() {}

        @Override
        public List<Part> snapshotState(long checkpoint) {
            return Collections.emptyList();
        }

        @Override
        public void addSplits(List<Part> parts) {}

        @Override
        public void notifyNoMoreSplits() {}

        @Override
        public void close() {}
    }

    private static final class NoParts implements SplitEnumerator<Part, Void> {
        @Override
        public void start() {}

        @Override
        public void handleSplitRequest(int subtask, String host) {}

        @Override
        public void addSplitsBack(List<Part> parts, int subtask) {}

        @Override
        public void addReader(int subtask) {}

        @Override
        public Void snapshotState(long checkpoint) {
            return null;
        }

        @Override
        public void close() {}
    }

    private static final class Nothing<T> implements SimpleVersionedSerializer<T> {
        @Override
        public int getVersion() {
            return 1;
        }

        @Override
        public byte[] serialize(T value) {
            return new byte[0];
        }

        @Override
        public T deserialize(int version, byte[] bytes) {
            return null;
        }
    }
}
