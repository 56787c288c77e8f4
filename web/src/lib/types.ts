/** The answers of Flink's REST API, as far as the page reads them. Times are ms since the epoch, durations ms, sizes bytes. */

export type JobState =
  | "INITIALIZING"
  | "CREATED"
  | "RUNNING"
  | "FAILING"
  | "FAILED"
  | "CANCELLING"
  | "CANCELED"
  | "FINISHED"
  | "RESTARTING"
  | "SUSPENDED"
  | "RECONCILING";

export interface Overview {
  taskmanagers: number;
  "slots-total": number;
  "slots-available": number;
  "jobs-running": number;
  "jobs-finished": number;
  "jobs-cancelled": number;
  "jobs-failed": number;
  "flink-version": string;
}

export interface Features {
  "web-submit": boolean;
  "web-cancel": boolean;
  "web-rescale": boolean;
  "web-history": boolean;
}

export interface PageConfig {
  "refresh-interval": number;
  "flink-version": string;
  features: Features;
}

export interface JobSummary {
  jid: string;
  name: string;
  jobType?: string | null;
  "start-time": number;
  "end-time": number;
  duration: number;
  state: JobState;
  tasks: Record<string, number>;
  /** How often it began again after a failure. */
  restarts: number;
  /** -1 if it never failed. */
  "last-failure": number;
}

export interface IoTotals {
  "read-bytes": number;
  "write-bytes": number;
  "read-records": number;
  "write-records": number;
  "accumulated-backpressured-time": number;
  "accumulated-idle-time": number;
  "accumulated-busy-time": number | "NaN";
}

export interface Vertex {
  id: string;
  name: string;
  parallelism: number;
  maxParallelism: number;
  status: string;
  "start-time": number;
  "end-time": number;
  duration: number;
  tasks: Record<string, number>;
  metrics: IoTotals;
}

export interface PlanNode {
  id: string;
  parallelism: number;
  description: string;
  inputs?: { id: string; num: number; exchange: string; ship_strategy?: string | null }[] | null;
}

export interface Job {
  jid: string;
  name: string;
  state: JobState;
  "job-type"?: string | null;
  schedulerType?: string | null;
  "start-time": number;
  "end-time": number;
  duration: number;
  maxParallelism: number;
  now: number;
  timestamps: Record<string, number>;
  vertices: Vertex[];
  "status-counts": Record<string, number>;
  plan: { nodes: PlanNode[]; type: string };
  restarts: number;
  "last-failure": number;
}

export interface Subtask {
  subtask: number;
  status: string;
  attempt: number;
  endpoint: string;
  "start-time": number;
  duration: number;
  metrics: IoTotals;
  "taskmanager-id": string;
  "status-duration": Record<string, number>;
}

export interface VertexDetail {
  id: string;
  name: string;
  parallelism: number;
  now: number;
  subtasks: Subtask[];
}

export interface Metric {
  id: string;
  value?: string;
}

export interface AggregatedMetric {
  id: string;
  min?: number | "NaN";
  max?: number | "NaN";
  avg?: number | "NaN";
  sum?: number | "NaN";
}

export interface Statistic {
  min: number;
  max: number;
  avg: number;
  p50: number | "NaN";
  p90: number | "NaN";
  p95: number | "NaN";
  p99: number | "NaN";
  p999: number | "NaN";
}

export interface CheckpointFigures {
  id: number;
  status: "IN_PROGRESS" | "COMPLETED" | "FAILED";
  latest_ack_timestamp: number;
  checkpointed_size: number;
  state_size: number;
  end_to_end_duration: number;
  alignment_buffered: number;
  processed_data: number;
  persisted_data: number;
  num_subtasks: number;
  num_acknowledged_subtasks: number;
}

export interface Checkpoint extends CheckpointFigures {
  is_savepoint: boolean;
  savepointFormat?: string | null;
  trigger_timestamp: number;
  checkpoint_type: string;
  tasks?: Record<string, CheckpointFigures> | null;
  external_path?: string | null;
  discarded?: boolean;
  failure_timestamp?: number;
  failure_message?: string | null;
}

export interface Checkpoints {
  counts: { restored: number; total: number; in_progress: number; completed: number; failed: number };
  summary: Record<string, Statistic>;
  latest: {
    completed: Checkpoint | null;
    savepoint: Checkpoint | null;
    failed: Checkpoint | null;
    restored: { id: number; restore_timestamp: number; is_savepoint: boolean; external_path?: string | null } | null;
  };
  history: Checkpoint[];
}

export interface SubtaskCheckpoint {
  index: number;
  status: string;
  ack_timestamp?: number;
  end_to_end_duration?: number;
  checkpointed_size?: number;
  state_size?: number;
  checkpoint?: { sync: number; async: number };
  alignment?: { buffered: number; processed: number; persisted: number; duration: number };
  start_delay?: number;
  unaligned_checkpoint?: boolean;
}

export interface VertexCheckpoint extends CheckpointFigures {
  subtasks: SubtaskCheckpoint[];
}

export interface ExceptionEntry {
  exceptionName: string;
  stacktrace: string;
  timestamp: number;
  failureLabels?: Record<string, string>;
  taskName?: string | null;
  endpoint?: string | null;
  taskManagerId?: string | null;
  concurrentExceptions?: ExceptionEntry[];
}

export interface Exceptions {
  exceptionHistory: { entries: ExceptionEntry[]; truncated: boolean };
}

export interface Accumulator {
  name: string;
  type: string;
  value: string;
}

export interface BackPressure {
  status: string;
  backpressureLevel: string;
  "end-timestamp"?: number;
  subtasks?: { subtask: number; backpressureLevel: string; ratio: number; idleRatio: number; busyRatio: number }[];
}

export interface FlameNode {
  name: string;
  value: number;
  children: FlameNode[];
}

export interface FlameGraph {
  endTimestamp?: number;
  data?: FlameNode;
}

export interface StatusHistory {
  now: number;
  /** Oldest first; the end of the last one is -1 while the job is in that status. */
  periods: { status: JobState; "start-time": number; "end-time": number }[];
  truncated: boolean;
}

export interface HoldInput {
  id: string;
  name: string;
  holds: boolean;
  idle: boolean;
  ended: boolean;
  watermark: number | null;
  subtasks: number[];
  splits: string[];
  count: number;
}

/** A vertex whose watermark stands still while other inputs of it are ahead. */
export interface Hold {
  id: string;
  name: string;
  operator: string;
  subtasks: number[];
  watermark: number | null;
  since: number;
  duration: number;
  inputs: HoldInput[];
  origin: { id: string; name: string; subtasks: number[]; splits: string[] } | null;
}

/** The longest first. */
export interface WatermarkHolds {
  now: number;
  holds: Hold[];
}

export interface SubtaskTimes {
  id: string;
  name: string;
  now: number;
  subtasks: { subtask: number; endpoint: string; duration: number; timestamps: Record<string, number> }[];
}

export interface KeyValue {
  key: string;
  value: string;
}

export interface JobConfig {
  "execution-config": Record<string, string | number | boolean | Record<string, string>> & {
    "user-config": Record<string, string>;
  };
}

export interface TaskManager {
  id: string;
  path: string;
  dataPort: number;
  timeSinceLastHeartbeat: number;
  slotsNumber: number;
  freeSlots: number;
  hardware: { cpuCores: number; physicalMemory: number; freeMemory: number; managedMemory: number };
  memoryConfiguration: Record<string, number | null>;
  metrics?: Record<string, number | { name: string; count: number; time: number }[]>;
  /** The job that it works for. */
  "job-id"?: string;
  "job-name"?: string;
  allocatedSlots?: { jobId: string; assignedTasks?: number }[];
}

export interface LogFile {
  name: string;
  size: number;
  mtime: number;
}

export interface ThreadDump {
  threadInfos: { threadName: string; stringifiedThreadInfo: string }[];
}

export interface Environment {
  jvm: { version: string; arch: string; options: string[] };
  classpath: string[];
}

export interface Trigger {
  "request-id": string;
}

export interface TriggerStatus {
  status: { id: "IN_PROGRESS" | "COMPLETED" };
  operation?: {
    location?: string | null;
    checkpointId?: number | null;
    "failure-cause"?: { class: string; "stack-trace": string } | null;
    failureCause?: { class: string; "stack-trace": string } | null;
  } | null;
}

export type Requirements = Record<string, { parallelism: { lowerBound: number; upperBound: number } }>;

/** A change of the parallelism, or a request for one; without a state while it is open. */
export interface Rescale {
  rescaleUuid: string;
  terminalState: "COMPLETED" | "FAILED" | "IGNORED" | null;
  terminatedReason: string | null;
  triggerCause: string;
  schedulerStates: { stringifiedException: string | null }[];
}
