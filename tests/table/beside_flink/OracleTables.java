import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkGeneratorSupplier;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.legacy.table.connector.source.SourceFunctionProvider;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.metrics.groups.UnregisteredMetricsGroup;
import org.apache.flink.streaming.api.functions.source.legacy.RichSourceFunction;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.RuntimeConverter;
import org.apache.flink.table.connector.format.DecodingFormat;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.sink.SinkV2Provider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.LookupTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.abilities.SupportsWatermarkPushDown;
import org.apache.flink.table.connector.source.lookup.LookupFunctionProvider;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.factories.DeserializationFormatFactory;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.LookupFunction;
import org.apache.flink.table.runtime.connector.source.ScanRuntimeProviderContext;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.clock.RelativeClock;
import org.apache.flink.util.clock.SystemClock;

/** The connector `oracle`: tables of a program's rows, and tables that keep what arrives. */
public final class OracleTables implements DynamicTableSourceFactory, DynamicTableSinkFactory {
    private static final ConfigOption<String> MODE = option("changelog-mode");
    private static final ConfigOption<String> DELETES_BY_KEY = option("source.produces-delete-by-key");
    private static final ConfigOption<String> TAKES_DELETES_BY_KEY = option("sink.supports-delete-by-key");

    private static ConfigOption<String> option(String name) {
        return ConfigOptions.key(name).stringType().defaultValue("");
    }

    @Override
    public String factoryIdentifier() {
        return "oracle";
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Collections.emptySet();
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return Set.of(MODE, DELETES_BY_KEY, TAKES_DELETES_BY_KEY, FactoryUtil.FORMAT);
    }

    @Override
    public DynamicTableSource createDynamicTableSource(Context context) {
        FactoryUtil.TableFactoryHelper helper = FactoryUtil.createTableFactoryHelper(this, context);
        DecodingFormat<DeserializationSchema<RowData>> format =
                helper.discoverDecodingFormat(DeserializationFormatFactory.class, FactoryUtil.FORMAT);
        helper.validate();
        ChangelogMode mode = mode(helper.getOptions().get(MODE), helper.getOptions().get(DELETES_BY_KEY));
        String name = context.getObjectIdentifier().getObjectName();
        return new Source(name, mode, format, context.getPhysicalRowDataType(), context.getPrimaryKeyIndexes(), null);
    }

    @Override
    public DynamicTableSink createDynamicTableSink(Context context) {
        FactoryUtil.TableFactoryHelper helper = FactoryUtil.createTableFactoryHelper(this, context);
        String mode = helper.getOptions().get(MODE);
        String name = context.getObjectIdentifier().getObjectName();
        boolean isByKey = context.getCatalogTable().getResolvedSchema().getPrimaryKey().isPresent();
        ChangelogMode fixed = mode.isEmpty() ? null : mode(mode, helper.getOptions().get(TAKES_DELETES_BY_KEY));
        return new Kept(name, fixed, isByKey, context.getPhysicalRowDataType());
    }

    private static ChangelogMode mode(String text, String isByKey) {
        ChangelogMode.Builder mode = ChangelogMode.newBuilder();
        for (String kind : (text.isEmpty() ? "I" : text).split(",")) {
            mode.addContainedKind(kind(kind));
        }
        return mode.keyOnlyDeletes(isByKey.equals("true")).build();
    }

    private static RowKind kind(String text) {
        return switch (text) {
            case "I", "+I" -> RowKind.INSERT;
            case "UB", "-U" -> RowKind.UPDATE_BEFORE;
            case "UA", "+U" -> RowKind.UPDATE_AFTER;
            case "D", "-D" -> RowKind.DELETE;
            default -> throw new IllegalArgumentException("no kind of row: " + text);
        };
    }

    /** A table of rows, which are JSON. */
    private record Source(
            String name,
            ChangelogMode mode,
            DecodingFormat<DeserializationSchema<RowData>> format,
            DataType type,
            int[] primaryKey,
            WatermarkStrategy<RowData>[] watermarks)
            implements ScanTableSource, LookupTableSource, SupportsWatermarkPushDown {
        @SuppressWarnings("unchecked")
        Source {
            watermarks = watermarks == null ? new WatermarkStrategy[1] : watermarks;
        }

        @Override
        public ChangelogMode getChangelogMode() {
            return mode;
        }

        @Override
        public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
            DeserializationSchema<RowData> decoder = format.createRuntimeDecoder(context, type);
            // A source that ends sends no watermarks on its way, except where it does not say so.
            return SourceFunctionProvider.of(new Reader(name, decoder, watermarks[0]), Oracle.isBatch);
        }

        @Override
        public LookupRuntimeProvider getLookupRuntimeProvider(LookupContext context) {
            ScanContext scanning = ScanRuntimeProviderContext.INSTANCE;
            DeserializationSchema<RowData> decoder = format.createRuntimeDecoder(scanning, type);
            return LookupFunctionProvider.of(new Finder(name, decoder, context.getKeys(), primaryKey, type));
        }

        @Override
        public void applyWatermark(WatermarkStrategy<RowData> strategy) {
            watermarks[0] = strategy;
        }

        @Override
        public DynamicTableSource copy() {
            return new Source(name, mode, format, type, primaryKey, watermarks.clone());
        }

        @Override
        public String asSummaryString() {
            return name;
        }
    }

    /** Gives the rows in their turns, and a watermark after each. */
    private static final class Reader extends RichSourceFunction<RowData> {
        private final String name;
        private final DeserializationSchema<RowData> decoder;
        private final WatermarkStrategy<RowData> watermarks;

        Reader(String name, DeserializationSchema<RowData> decoder, WatermarkStrategy<RowData> watermarks) {
            this.name = name;
            this.decoder = decoder;
            this.watermarks = watermarks;
        }

        @Override
        public void run(SourceContext<RowData> context) throws Exception {
            decoder.open(null);
            WatermarkGenerator<RowData> generator =
                    watermarks == null ? null : watermarks.createWatermarkGenerator(new Clocks());
            WatermarkOutput output =
                    new WatermarkOutput() {
                        @Override
                        public void emitWatermark(Watermark mark) {
                            long time = mark.getTimestamp();
                            context.emitWatermark(new org.apache.flink.streaming.api.watermark.Watermark(time));
                        }

                        @Override
                        public void markIdle() {}

                        @Override
                        public void markActive() {}
                    };
            for (Oracle.Change change : Oracle.GIVEN.getOrDefault(name, List.of())) {
                Oracle.await(change.turn());
                RowData row = decoder.deserialize(change.json());
                row.setRowKind(kind(change.kind()));
                synchronized (context.getCheckpointLock()) {
                    context.collect(row);
                    if (generator != null) {
                        generator.onEvent(row, Long.MIN_VALUE, output);
                        generator.onPeriodicEmit(output);
                    }
                }
            }
        }

        @Override
        public void cancel() {}
    }

    private static final class Clocks implements WatermarkGeneratorSupplier.Context {
        @Override
        public MetricGroup getMetricGroup() {
            return new UnregisteredMetricsGroup();
        }

        @Override
        public RelativeClock getInputActivityClock() {
            return SystemClock.getInstance();
        }
    }

    /** The rows of a table that have these values: of a key the last one. */
    public static final class Finder extends LookupFunction {
        private final String name;
        private final DeserializationSchema<RowData> decoder;
        private final RowData.FieldGetter[] asked;
        private final RowData.FieldGetter[] primaryKey;
        private transient Collection<RowData> rows;

        Finder(String name, DeserializationSchema<RowData> decoder, int[][] keys, int[] primaryKey, DataType type) {
            this.name = name;
            this.decoder = decoder;
            this.asked = getters(Arrays.stream(keys).mapToInt(key -> key[0]).toArray(), type);
            this.primaryKey = getters(primaryKey, type);
        }

        private static RowData.FieldGetter[] getters(int[] places, DataType type) {
            List<LogicalType> types = type.getLogicalType().getChildren();
            return Arrays.stream(places)
                    .mapToObj(place -> RowData.createFieldGetter(types.get(place), place))
                    .toArray(RowData.FieldGetter[]::new);
        }

        @Override
        public void open(FunctionContext context) throws Exception {
            decoder.open(null);
            Map<Object, RowData> last = new LinkedHashMap<>();
            for (Oracle.Change change : Oracle.GIVEN.getOrDefault(name, List.of())) {
                RowData row = decoder.deserialize(change.json());
                List<Object> key = Arrays.stream(primaryKey).map(getter -> getter.getFieldOrNull(row)).toList();
                last.put(key.isEmpty() ? last.size() : key, row);
            }
            rows = last.values();
        }

        @Override
        public List<RowData> lookup(RowData key) {
            List<RowData> found = new ArrayList<>();
            for (RowData row : rows) {
                boolean isAlike = true;
                for (int place = 0; place < asked.length; place++) {
                    Object value = asked[place].getFieldOrNull(row);
                    isAlike &= value != null && value.equals(((GenericRowData) key).getField(place));
                }
                if (isAlike) {
                    found.add(row);
                }
            }
            return found;
        }
    }

    /** A table that keeps what arrives: with a primary key no rows before updates, unless its mode is fixed. */
    private record Kept(String name, ChangelogMode fixed, boolean isByKey, DataType type) implements DynamicTableSink {
        @Override
        public ChangelogMode getChangelogMode(ChangelogMode requested) {
            if (fixed != null) {
                return fixed;
            }
            return isByKey ? ChangelogMode.upsert(false) : ChangelogMode.all();
        }

        @Override
        public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
            return SinkV2Provider.of(new Keeping(name, context.createDataStructureConverter(type)));
        }

        @Override
        public DynamicTableSink copy() {
            return this;
        }

        @Override
        public String asSummaryString() {
            return name;
        }
    }

    private record Keeping(String name, DynamicTableSink.DataStructureConverter converter) implements Sink<RowData> {
        @Override
        public SinkWriter<RowData> createWriter(WriterInitContext context) {
            List<String> rows =
                    Oracle.ARRIVED.computeIfAbsent(name, any -> Collections.synchronizedList(new ArrayList<>()));
            converter.open(RuntimeConverter.Context.create(OracleTables.class.getClassLoader()));
            return new SinkWriter<>() {
                @Override
                public void write(RowData row, Context unused) {
                    rows.add(String.valueOf(converter.toExternal(row)));
                }

                @Override
                public void flush(boolean isEnd) {}

                @Override
                public void close() {}
            };
        }
    }
}
