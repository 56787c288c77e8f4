"""Streaming jobs: what is recorded of them, and how a run starts, keeps, changes and ends them.

**A job** is an INSERT of a model's query into its sink. Its name is that of the model with a generation, such as
`dbt.shop.totals#1`. A full refresh begins a new generation. Within a generation the job keeps its state: every start
says `penstock.recovery.from-latest`, so the job resumes from the newest checkpoint, or from the savepoint it was
stopped with, that a job of its name has left, whether or not the gateway was killed meanwhile. Cancelled jobs keep
their checkpoints.

**The record** of a model is a table in a catalog of files: which generation is valid, the declaration of the sink, the
query, and the plan of the job. A start of another query or generation is recorded as *pending* before the job starts.
When the job runs, the sink's declaration is published, and the record becomes valid. So whenever dbt, the gateway or
both are killed, the next run finds either that the pending job runs, and completes the change, or that it does not, and
goes on from what is valid.

**A changed query** is planned before anything happens. The ids of the plan's steps with state decide whether the state
fits. If it does not, the job goes on unchanged, and the error names the steps whose state would be lost.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from dbt.adapters.penstock.connections import JOBS_CATALOG, Handle
from dbt.adapters.penstock.declarations import Declaration, literal, options_of, plain_type, quoted
from dbt.adapters.penstock.gateway import GatewayError, GatewayUnreachableError, Statement
from dbt.adapters.penstock.relations import PenstockRelation
from dbt_common.exceptions import DbtRuntimeError

#: The format of a record.
VERSION: Final = 1
STREAMING: Final = {"execution.runtime-mode": "streaming", "table.dml-sync": "true"}
#: The interval of checkpoints, unless the model says otherwise.
CHECKPOINT_INTERVAL: Final = "10 s"
#: How often (s) the status of a job that starts is asked for.
ASK_SECONDS: Final = 0.2
#: Statuses of a job that has not ended.
ALIVE: Final = ("INITIALIZING", "CREATED", "RUNNING", "FAILING", "CANCELLING", "RESTARTING", "RECONCILING")


@dataclass(frozen=True)
class Version:
    """A job as it was started, or is to be started.

    Attributes:
        generation: increased by each full refresh.
        fingerprint: a digest of all that makes the job.
        query: the model's query.
        sink: the declaration of the sink, as `Declaration` has it.
        states: the steps of the plan that keep state, by the id of the state.
        options: the model's options of the job.
        has_ended: whether the job has reached the end of its input.
    """

    generation: int
    fingerprint: str
    query: str
    sink: Mapping[str, Any]
    states: Mapping[str, str]
    options: Mapping[str, str]
    has_ended: bool = False

    @property
    def declaration(self) -> Declaration:
        """The sink."""
        columns = [(str(name), str(data_type)) for name, data_type in self.sink["columns"]]
        return Declaration(**{**self.sink, "columns": columns})


@dataclass(frozen=True)
class Record:
    """What is recorded of a model.

    Attributes:
        generation: the newest generation, whether it became valid or not.
        valid: the job whose output readers see.
        pending: the job that is about to take its place.
    """

    generation: int = 0
    valid: Version | None = None
    pending: Version | None = None

    def to_text(self) -> str:
        """Return the record as JSON."""
        return json.dumps({"version": VERSION, **asdict(self)}, ensure_ascii=False, sort_keys=True)

    @classmethod
    def of_text(cls, text: str) -> Record:
        """Return the record in a text."""
        content = json.loads(text)
        if content.pop("version", None) != VERSION:
            raise DbtRuntimeError(f"the record of a streaming job is not of version {VERSION}: {text[:200]}")
        versions = {name: None if content[name] is None else Version(**content[name]) for name in ("valid", "pending")}
        return cls(content["generation"], **versions)


@dataclass(frozen=True)
class Job:
    """A job of the gateway."""

    id: str
    name: str
    status: str

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.status in ALIVE


@dataclass
class JobConfig:
    """What a model says about its job.

    Attributes:
        options: of the sink.
        job_options: of the job.
        primary_key: of the sink.
        partitioned_by: of the sink.
        comment: of the sink.
        comments: of its columns.
    """

    options: Mapping[str, str]
    job_options: Mapping[str, str]
    primary_key: Sequence[str] = ()
    partitioned_by: Sequence[str] = ()
    comment: str = ""
    comments: Mapping[str, str] = field(default_factory=dict)


class Records:
    """The records of all models, each a table of a catalog of files, so that its change is one file renamed."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def read(self, relation: PenstockRelation) -> Record:
        """Return what is recorded of a model."""
        if self._key(relation) not in self._handle.run(f"SHOW TABLES FROM {quoted(JOBS_CATALOG, 'jobs')}").first(
            "table name"
        ):
            return Record()
        text = self._handle.run(f"SHOW CREATE TABLE {self._name(relation)}").rows[0][0]
        return Record.of_text(options_of(text)["record"])

    def write(self, relation: PenstockRelation, record: Record) -> None:
        """Replace what is recorded of a model."""
        options = {"connector": "dbt-penstock", "record": record.to_text()}
        declaration = Declaration([("record", "STRING")], options)
        self._handle.run(declaration.create(self._name(relation), if_not_exists=True))
        self._handle.run(f"ALTER TABLE {self._name(relation)} SET ('record' = {literal(options['record'])})")

    def remove(self, relation: PenstockRelation) -> None:
        """Forget a model."""
        self._handle.run(f"DROP TABLE IF EXISTS {self._name(relation)}")

    @staticmethod
    def _key(relation: PenstockRelation) -> str:
        return f"{relation.database}.{relation.schema}.{relation.identifier}"

    def _name(self, relation: PenstockRelation) -> str:
        return quoted(JOBS_CATALOG, "jobs", self._key(relation))


class StreamingJobs:
    """The streaming jobs of a connection.

    Args:
        handle: the session for everything but the INSERTs, which have sessions of their own.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.records = Records(handle)

    # --- what there is -----------------------------------------------------------------------------------------------

    def find(self, relation: PenstockRelation, generation: int) -> Job | None:
        """Return the newest job of a generation that the gateway knows; one that has not ended is preferred."""
        rows = self._handle.run("SHOW JOBS").rows
        jobs = [Job(*row[:3]) for row in rows if row[1] == job_name(relation, generation)]
        return next((job for job in jobs if job.is_alive), jobs[0] if jobs else None)

    def ids(self, relation: PenstockRelation, generation: int) -> set[str]:
        """Return the ids of all jobs of a generation that the gateway knows."""
        rows = self._handle.run("SHOW JOBS").rows
        return {row[0] for row in rows if row[1] == job_name(relation, generation)}

    def settle(self, relation: PenstockRelation) -> Record:
        """Return what is recorded of a model, after the completion or the end of a change that was cut off."""
        record = self.records.read(relation)
        pending = record.pending
        if pending is None:
            return record
        job = self.find(relation, pending.generation)
        is_same = record.valid is not None and record.valid.generation == pending.generation
        if job is None or not (job.is_alive or (job.status == "FINISHED" and not is_same)):
            # Under the name of both versions, the job before is FINISHED when it has stopped with its savepoint.
            record = replace(record, pending=None)
        elif is_same:
            # The job of either version runs under this name. Its next start is from its own savepoint in any case.
            record = replace(record, pending=None, valid=replace(pending, fingerprint="unknown"))
        else:
            self._end_before(relation, record)
            self._publish(relation, pending)
            record = replace(record, pending=None, valid=pending)
        self.records.write(relation, record)
        return record

    # --- a run -------------------------------------------------------------------------------------------------------

    def run(self, relation: PenstockRelation, query: str, config: JobConfig, full_refresh: bool) -> str:
        """Let a model's job run, and return what was done, for people.

        Raises:
            DbtRuntimeError: if the query has changed so that its state does not fit, or the job fails when it starts.
        """
        record = self.settle(relation)
        valid = record.valid
        begins = valid is None or full_refresh
        # A first job that was cut off may have written rows already: the next one resumes from its checkpoints.
        generation = record.generation + 1 if full_refresh or not record.generation else record.generation
        with _JobSession(self._handle) as session:
            new = session.plan(relation, query, config, generation)
            if begins:
                return self._begin(session, relation, record, new)
            assert valid is not None
            job = self.find(relation, generation)
            if valid.fingerprint == new.fingerprint:
                return self._keep(session, relation, record, new, job)
            return self._change(session, relation, record, new, job)

    def _begin(self, session: _JobSession, relation: PenstockRelation, record: Record, new: Version) -> str:
        """Start the first job of a generation."""
        before = record.valid
        job = None if before is None else self.find(relation, before.generation)
        record = replace(record, generation=new.generation)
        started = self._replace(session, relation, record, new, job)
        done = f"job {started.id} begins" if before is None else f"job {started.id} begins anew"
        return f"{done}: {started.status}"

    def _keep(
        self, session: _JobSession, relation: PenstockRelation, record: Record, same: Version, job: Job | None
    ) -> str:
        """Leave an unchanged job alone, or resume it if it does not run."""
        if job is not None and job.is_alive:
            return f"job {job.id} unchanged: {job.status}"
        # A job that has stopped with a savepoint is FINISHED, too: only a start tells whether its input has ended.
        if record.valid is not None and record.valid.has_ended:
            return "job unchanged: FINISHED"
        try:
            started = session.start(relation, same, self)
        except GatewayUnreachableError:
            raise
        except GatewayError as error:
            raise DbtRuntimeError(f"the job of {relation} does not resume: {error}") from error
        self._finish(relation, record, same, started)
        return f"job {started.id} resumes: {started.status}"

    def _change(
        self, session: _JobSession, relation: PenstockRelation, record: Record, new: Version, job: Job | None
    ) -> str:
        """Let another query take over the state of the job."""
        valid = record.valid
        assert valid is not None
        if valid.has_ended:
            raise DbtRuntimeError(nothing_left(relation))
        lost = [step for state, step in valid.states.items() if state not in new.states]
        anew = [step for state, step in new.states.items() if state not in valid.states]
        if lost:
            raise DbtRuntimeError(refusal(relation, lost, anew, job))
        started = self._replace(session, relation, record, new, job)
        if started.status == "FINISHED" and (job is None or not job.is_alive):
            raise DbtRuntimeError(nothing_left(relation))
        empty = f" (begins without state: {'; '.join(anew)})" if anew else ""
        return f"job {started.id} continues with the changed query{empty}: {started.status}"

    def _replace(
        self, session: _JobSession, relation: PenstockRelation, record: Record, new: Version, job: Job | None
    ) -> Job:
        """Stop a job and start that of another version. If the new one does not start, return to the valid version."""
        pending = replace(record, pending=new)
        self.records.write(relation, pending)
        if job is not None and job.is_alive:
            self._stop(job)
        try:
            started = session.start(relation, new, self)
        except GatewayUnreachableError:
            raise
        except GatewayError as error:
            self.records.write(relation, replace(record, pending=None))
            self._back_to(relation, record.valid, job, error)
        self._finish(relation, pending, new, started)
        return started

    def _finish(self, relation: PenstockRelation, record: Record, new: Version, started: Job) -> None:
        """Let readers see a job that has started."""
        self._publish(relation, new)
        valid = replace(new, has_ended=started.status == "FINISHED")
        self.records.write(relation, replace(record, valid=valid, pending=None))

    def _back_to(
        self, relation: PenstockRelation, before: Version | None, job: Job | None, error: GatewayError
    ) -> None:
        """Start the job again that ran before, and raise the failure of the new one."""
        text = f"the job of {relation} does not start: {error}"
        if before is not None and job is not None and job.is_alive:
            with _JobSession(self._handle) as session:
                session.declare(relation, before.declaration)
                again = session.start(relation, before, self)
            text += f"\nThe query that ran before goes on with its state, as job {again.id}."
        raise DbtRuntimeError(text) from error

    def _end_before(self, relation: PenstockRelation, record: Record) -> None:
        """End the job of the generation before."""
        if record.valid is not None:
            job = self.find(relation, record.valid.generation)
            if job is not None and job.is_alive:
                self._stop(job)

    def _stop(self, job: Job) -> str:
        """Stop a job with a savepoint, and return where it is.

        A job that is restarting after a failure can take none. It is cancelled, and keeps its last checkpoint.
        """
        try:
            return str(self._handle.run(f"STOP JOB {literal(job.id)} WITH SAVEPOINT").rows[0][0])
        except GatewayUnreachableError:
            raise
        except GatewayError:
            self._handle.run(f"STOP JOB {literal(job.id)}")
            return ""

    def _publish(self, relation: PenstockRelation, version: Version) -> None:
        """Let readers see the sink of a job. Nothing changes if they see it already."""
        if self._handle.credentials.stores_tables(str(relation.database)):
            return
        name, declaration = relation.render(), version.declaration
        staging = relation.incorporate(path={"identifier": f"{relation.identifier}__dbt_new"}).render()
        self._handle.run(f"DROP TABLE IF EXISTS {staging}")
        self._handle.run(declaration.create(staging))
        shown = {}
        database = quoted(str(relation.database), str(relation.schema))
        tables = self._handle.run(f"SHOW TABLES FROM {database}").first("table name")
        views = self._handle.run(f"SHOW VIEWS FROM {database}").first("view name")
        for table in (name, staging) if relation.identifier in tables and relation.identifier not in views else ():
            shown[table] = str(self._handle.run(f"SHOW CREATE TABLE {table}").rows[0][0]).replace(table, name)
        if shown and shown[name] == shown[staging]:
            self._handle.run(f"DROP TABLE {staging}")
            return
        if relation.identifier in tables:
            kind = "VIEW" if relation.identifier in views else "TABLE"
            self._handle.run(f"DROP {kind} {name}")
        self._handle.run(f"ALTER TABLE {staging} RENAME TO {quoted(str(relation.identifier))}")

    # --- the end -----------------------------------------------------------------------------------------------------

    def end(self, relation: PenstockRelation, forget: bool = False) -> str:
        """Stop the job of a model with a savepoint. With `forget` its state is given up.

        Returns:
            the path of the savepoint; empty if no job ran.
        """
        record = self.settle(relation)
        path = ""
        if record.valid is not None:
            job = self.find(relation, record.valid.generation)
            if job is not None and job.is_alive:
                path = self._stop(job)
        if forget and record.generation:
            self.records.write(relation, Record(record.generation + 1))
        return path


class _JobSession:
    """A session in which the sink of one model has the declaration of the job to start, and nobody else sees it."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle.open_another()

    def __enter__(self) -> _JobSession:
        return self

    def __exit__(self, *exception: object) -> None:
        self._handle.close()

    def declare(self, relation: PenstockRelation, declaration: Declaration) -> None:
        """Declare the sink for this session."""
        name = relation.render()
        if self._handle.credentials.stores_tables(str(relation.database)):
            self._handle.run(declaration.create(name, if_not_exists=True))
            return
        self._handle.run(f"DROP TEMPORARY TABLE IF EXISTS {name}")
        self._handle.run(declaration.create(name, temporary=True))

    def plan(self, relation: PenstockRelation, query: str, config: JobConfig, generation: int) -> Version:
        """Plan the job of a model, without any effect outside of this session."""
        view = quoted(str(relation.database), str(relation.schema), f"{relation.identifier}__dbt_query")
        try:
            self._handle.run(f"CREATE TEMPORARY VIEW {view} AS {query}", STREAMING)
            columns = self._handle.run(f"DESCRIBE {view}", STREAMING).rows
            declaration = Declaration(
                [(row[0], plain_type(row[1])) for row in columns],
                {key: text.replace("{generation}", str(generation)) for key, text in config.options.items()},
                config.primary_key,
                "",
                config.partitioned_by,
                config.comment,
                config.comments,
            )
            self.declare(relation, declaration)
            explain = f"EXPLAIN JSON_EXECUTION_PLAN {insert(relation, query)}"
            text = str(self._handle.run(explain, STREAMING | dict(config.job_options)).rows[0][0])
        except GatewayUnreachableError:
            raise
        except GatewayError as error:
            raise DbtRuntimeError(f"the query of {relation} cannot run as a streaming job: {error}") from error
        nodes = json.loads(text.partition("== Physical Execution Plan ==")[2])["nodes"]
        sources = [self._source(node["contents"]) for node in nodes if node["pact"] == "Data Source"]
        options = sorted((self._handle.credentials.session_options() | dict(config.job_options)).items())
        made_of = [nodes, sources, declaration.text(), options]
        fingerprint = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()
        states = {node["stateId"]: f"{node['type']}: {node['contents']}" for node in nodes if "stateId" in node}
        return Version(generation, fingerprint, query, asdict(declaration), states, dict(config.job_options))

    def _source(self, contents: str) -> str:
        """Return the declaration of a source, which belongs to the job like its query."""
        path = contents.partition("table=[")[2].partition("]")[0].split(".")
        if len(path) != 3:
            return contents
        try:
            return str(self._handle.run(f"SHOW CREATE TABLE {quoted(*path)}").rows[0][0])
        except GatewayError:
            return contents

    def start(self, relation: PenstockRelation, version: Version, jobs: StreamingJobs) -> Job:
        """Start a job, and return it when it runs or has ended well.

        Raises:
            GatewayError: if the job fails before it runs.
        """
        checkpoints = f"{self._handle.credentials.checkpoints}/jobs"
        options = {
            "execution.checkpointing.interval": CHECKPOINT_INTERVAL,
            **version.options,
            **STREAMING,
            "pipeline.name": job_name(relation, version.generation),
            "execution.checkpointing.dir": checkpoints,
            "execution.checkpointing.savepoint-dir": f"{self._handle.credentials.checkpoints}/savepoints",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "penstock.recovery.from-latest": "true",
        }
        ended = jobs.ids(relation, version.generation)
        statement = self._handle.session.submit(insert(relation, version.query), options)
        while True:
            is_done = statement.is_done()
            job = jobs.find(relation, version.generation)
            is_new = job is not None and job.id not in ended
            if job is not None and is_new and (is_done or job.status == "RUNNING"):
                break
            if is_done and not is_new:
                raise GatewayError(f"the gateway does not list the job {options['pipeline.name']}")
            time.sleep(ASK_SECONDS)
        self._leave(statement)
        return job

    def _leave(self, statement: Statement) -> None:
        statement.cancel()
        statement.close()


def insert(relation: PenstockRelation, query: str) -> str:
    """Return the statement of a job."""
    return f"INSERT INTO {relation.render()} {query}"


def job_name(relation: PenstockRelation, generation: int) -> str:
    """Return the name of a job, which is that of its checkpoints, too."""
    return f"{relation.database}.{relation.schema}.{relation.identifier}#{generation}"


def nothing_left(relation: PenstockRelation) -> str:
    """Return why a changed query has nothing to do."""
    return (
        f"the model {relation} has changed, and its job has reached the end of its input, so there is nothing left "
        "that the new query could read: run with --full-refresh to start from the beginning"
    )


def refusal(relation: PenstockRelation, lost: Sequence[str], anew: Sequence[str], job: Job | None) -> str:
    """Return why a changed query does not take over the state of its job."""
    lines = [f"the model {relation} has changed so that the state of its job does not fit. These steps would be lost:"]
    lines += [f"  - {step}" for step in lost]
    if anew:
        lines += ["These would begin without state:", *[f"  - {step}" for step in anew]]
    goes_on = f"Job {job.id} goes on with the query before." if job is not None and job.is_alive else "No job runs."
    lines.append(f"{goes_on} Run with --full-refresh to give up the state and start from the beginning.")
    return "\n".join(lines)
