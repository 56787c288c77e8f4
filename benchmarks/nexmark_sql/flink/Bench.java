package penstock.nexmark;

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.RuntimeExecutionMode;
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
import org.apache.flink.client.deployment.executors.PipelineExecutorUtils;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.PipelineExecutor;
import org.apache.flink.core.execution.PipelineExecutorFactory;
import org.apache.flink.core.execution.PipelineExecutorServiceLoader;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.runtime.minicluster.MiniClusterJobClient;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.api.TableResult;
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
import org.apache.flink.table.functions.ScalarFunction;
import org.apache.flink.table.runtime.arrow.ArrowReader;
import org.apache.flink.table.runtime.arrow.ArrowUtils;
import org.apache.flink.table.runtime.typeutils.RowDataSerializer;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.RowType;

/**
 * Runs one query of Nexmark in Flink SQL, on a cluster in this process that is up before time counts.
 *
 * <p>Arguments: a file of statements, the last of which is the INSERT, parted by NUL; a file of settings, one
 * "key: value" a line. Then a line of standard input is a command, and is answered by a line that begins with
 * "nexmark": "run N" runs the INSERT over the first N events; "state DIRECTORY" runs it over all events and, behind the
 * last, takes a savepoint.
 */
public final class Bench {
    /** Events that a poll of the source hands over. */
    private static final int POLLED = 256;

    /** Rows by the file and the columns that a query reads: what is held in memory before time counts. */
    private static final Map<String, List<RowData[]>> HELD = new ConcurrentHashMap<>();

    private static volatile long limit = Long.MAX_VALUE;
    /** Where the source says that all events are out, and stays; null where it ends. */
    private static volatile CountDownLatch allOut;

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
            for (int place = 0; place < statements.length - 1; place++) {
                tables.executeSql(statements[place]);
            }
            // Translation reads the events.
            tables.explainSql(insert);
            answer("ready");
            BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
            for (String command = commands.readLine(); command != null; command = commands.readLine()) {
                String[] words = command.split(" ", 2);
                limit = words[0].equals("run") ? Long.parseLong(words[1]) : Long.MAX_VALUE;
                answer(words[0].equals("run") ? timed(tables, insert) : state(tables, insert, words[1]));
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

    /** Seconds from execution to the job's end, and of processor time of this process. */
    private static String timed(StreamTableEnvironment tables, String insert) throws Exception {
        System.gc();
        long begin = System.nanoTime();
        long cpu = processorNanos();
        tables.executeSql(insert).await();
        return (System.nanoTime() - begin) / 1e9 + " " + (processorNanos() - cpu) / 1e9;
    }

    /** Takes a savepoint behind all events. Bytes that are live on the heap then, beyond the events. */
    private static String state(StreamTableEnvironment tables, String insert, String directory) throws Exception {
        long before = liveBytes();
        allOut = new CountDownLatch(1);
        TableResult result = tables.executeSql(insert);
        JobClient job = result.getJobClient().get();
        allOut.await();
        job.triggerSavepoint(directory, SavepointFormatType.CANONICAL).get();
        long live = liveBytes() - before;
        job.cancel().get();
        allOut = null;
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
            for (int place = 0; place < text.length(); place++) {
                count += text.charAt(place) == wanted ? 1 : 0;
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

    // ---- The events ------------------------------------------------------------------------------------------------

    /** Reads the columns at the paths of the file's Arrow columns, as rows on the heap, a list for each batch. */
    private static List<RowData[]> batches(String file, int[][] paths, RowType type) {
        List<RowData[]> found = new ArrayList<>();
        RowDataSerializer serializer = new RowDataSerializer(type);
        try (FileInputStream stream = new FileInputStream(file);
                ArrowFileReader reader = new ArrowFileReader(stream.getChannel(), ArrowUtils.getRootAllocator())) {
            VectorSchemaRoot root = reader.getVectorSchemaRoot();
            while (reader.loadNextBatch()) {
                ArrowReader columns = new ArrowReader(vectors(root, paths, type));
                RowData[] rows = new RowData[root.getRowCount()];
                for (int place = 0; place < rows.length; place++) {
                    rows[place] = serializer.toBinaryRow(columns.read(place), true);
                }
                found.add(rows);
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return found;
    }

    private static ColumnVector[] vectors(VectorSchemaRoot root, int[][] paths, RowType type) {
        ColumnVector[] vectors = new ColumnVector[paths.length];
        for (int place = 0; place < paths.length; place++) {
            ValueVector vector = root.getVector(paths[place][0]);
            for (int depth = 1; depth < paths[place].length; depth++) {
                // A part of a row that is NULL is NULL in the file, too.
                vector = (ValueVector) ((StructVector) vector).getChildByOrdinal(paths[place][depth]);
            }
            vectors[place] = ArrowUtils.createColumnVector(vector, type.getTypeAt(place));
        }
        return vectors;
    }

    /** 'connector' = 'nexmark-arrow': the events of an Arrow file, of which only the columns come that are read. */
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
            for (int place = 0; place < all.length; place++) {
                all[place] = new int[] {place};
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
        private long done;
        private int number;
        private int place;

        Reader(List<RowData[]> batches) {
            this.batches = batches;
        }

        @Override
        public InputStatus pollNext(ReaderOutput<RowData> output) {
            if (number == batches.size() || done >= stop) {
                if (allOut == null) {
                    return InputStatus.END_OF_INPUT;
                }
                allOut.countDown();
                return InputStatus.NOTHING_AVAILABLE;
            }
            RowData[] batch = batches.get(number);
            int end = (int) Math.min(Math.min(place + POLLED, batch.length), place + stop - done);
            done += end - place;
            for (; place < end; place++) {
                output.collect(batch[place]);
            }
            if (place == batch.length) {
                number++;
                place = 0;
            }
            return InputStatus.MORE_AVAILABLE;
        }

        @Override
        public CompletableFuture<Void> isAvailable() {
            boolean stays = allOut != null && number == batches.size();
            return stays ? new CompletableFuture<>() : CompletableFuture.completedFuture(null);
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
