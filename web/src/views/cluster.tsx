/** The process that runs the jobs' masters (Flink's job manager): its options, interpreter, logs and threads. */

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { useFeed } from "../lib/feed";
import { href } from "../lib/route";
import type { Environment, KeyValue } from "../lib/types";
import { Awaited, Figure, Figures, Pairs, Panel, Tabs } from "../parts/basics";
import { Logs, Text, Threads } from "./process";
import { ProcessMetrics } from "./workers";

const TABS: [key: string, title: string][] = [
  ["configuration", "Configuration"],
  ["metrics", "Metrics"],
  ["logs", "Logs"],
  ["stdout", "Prints"],
  ["threads", "Threads"],
];

export function ClusterView({ parts }: { parts: string[] }): JSX.Element {
  const [tab = "configuration", file] = parts;
  useEffect(() => {
    document.title = "Job manager · Penstock";
  }, []);
  return (
    <>
      <h1>Job manager</h1>
      <Tabs label="Views of the job manager" current={tab} tabs={TABS.map(([key, title]) => ({ key, title, href: href("cluster", key) }))} />
      {tab === "configuration" && <Configuration />}
      {tab === "metrics" && <ProcessMetrics path="/jobmanager" />}
      {tab === "logs" && <Logs path="/jobmanager" place={["cluster"]} chosen={file} />}
      {tab === "stdout" && <Text path="/jobmanager/stdout" title="What the program has printed" />}
      {tab === "threads" && <Threads path="/jobmanager" />}
    </>
  );
}

function Configuration(): JSX.Element {
  const options = useFeed<KeyValue[]>("/jobmanager/config", 0);
  const environment = useFeed<Environment>("/jobmanager/environment", 0);
  return (
    <>
      {environment.data && (
        <Figures>
          <Figure label="Interpreter" value={environment.data.jvm.version} />
          <Figure label="Machine" value={environment.data.jvm.arch} />
        </Figures>
      )}
      <Panel title="Options">
        <Awaited answer={options} what="options" />
        {options.data && <Pairs label="Options" pairs={options.data.map(({ key, value }) => [key, value])} />}
      </Panel>
      {environment.data && (
        <Panel title="Where modules come from">
          <Pairs label="Where modules come from" pairs={environment.data.classpath.map((path, n) => [String(n + 1), path])} />
        </Panel>
      )}
    </>
  );
}
