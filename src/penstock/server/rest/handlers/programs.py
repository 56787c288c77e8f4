"""Programs over REST: Flink's `/jars` for Python scripts and archives, and the programs started from them.

`parse_form_file` parses the file in an uploaded form (multipart/form-data) from a body in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from email.message import Message
from email.utils import collapse_rfc2231_value
from typing import Annotated, Final, Literal, TypeVar

import msgspec

from penstock.base.errors import MissingPathError, OperationError, WrongValueError
from penstock.base.options import PARALLELISM
from penstock.server.rest.calls.routing import Call, Empty, Parameter, RestError, Route, bad_request, not_found
from penstock.server.rest.messages.jobs import Plan
from penstock.server.session.channel import Programs, ProgramStatus, ProgramView, Submission, Uploaded

#: The maximum number of parts in a form, and of header bytes in a part.
PARTS_MAX: Final = 100
HEADERS_BYTES_MAX: Final = 16 << 10


def parse_form_file(content_type: str, body: bytes) -> tuple[str, bytes]:
    """Return the name and the content of the only file in a form.

    Raises:
        RestError: 400 if the body is not a form, or has no file or several.
    """
    boundary = _parameters(content_type, "multipart/form-data").get_param("boundary")
    if not isinstance(boundary, str) or not boundary:
        raise bad_request("The body must be multipart/form-data with one file, such as curl -F jarfile=@job.py sends.")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1", "replace"), PARTS_MAX + 1)
    if len(parts) > PARTS_MAX or not parts[-1].startswith(b"--"):
        raise bad_request("The form is not complete, or has too many parts.")
    files = []
    for part in parts[1:-1]:
        head, separator, content = part.partition(b"\r\n\r\n")
        if not separator or len(head) > HEADERS_BYTES_MAX:
            raise bad_request("A part of the form has no headers, or too long ones.")
        name = _file_name(head)
        if name is not None:
            files.append((name, content))
    if len(files) != 1:
        raise bad_request(f"Exactly 1 file must be sent, received {len(files)}.")
    return files[0]


def _file_name(head: bytes) -> str | None:
    for line in head.decode("utf-8", "replace").split("\r\n"):
        key, _, value = line.partition(":")
        if key.strip().lower() == "content-disposition":
            name = _parameters(value.strip(), "form-data").get_param("filename")
            return None if name is None else collapse_rfc2231_value(name)
    return None


def _parameters(value: str, kind: str) -> Message:
    """Parse a header with parameters, if its value is of this kind."""
    message = Message()
    if value.partition(";")[0].strip().lower() == kind:
        message["Content-Type"] = value
    return message


T = TypeVar("T")

HexId = Annotated[str, msgspec.Meta(pattern="^[0-9a-fA-F]{32}$")]
#: How long (s) a run request waits for the program's first job.
FIRST_JOB_SECONDS: Final = 50.0


class Entry(msgspec.Struct, frozen=True):
    """A module that can be run as the program."""

    name: str
    description: str | None = None


class Jar(msgspec.Struct, frozen=True):
    """An uploaded program; times in ms since the epoch."""

    id: str
    name: str
    uploaded: int
    entry: list[Entry]


class Jars(msgspec.Struct, frozen=True):
    """All uploaded programs, and the server's address."""

    address: str
    files: list[Jar]


class JarUploaded(msgspec.Struct, frozen=True):
    """The path of the uploaded file; its last part is the id."""

    filename: str
    status: Literal["success"] = "success"


class PlanRequest(msgspec.Struct, frozen=True, rename="camel"):
    """How to run a program."""

    entry_class: str | None = None
    program_args_list: list[str] | None = None
    parallelism: Annotated[int, msgspec.Meta(ge=1)] | None = None
    job_id: HexId | None = None
    flink_configuration: dict[str, str] | None = None


class RunRequest(PlanRequest, frozen=True, rename="camel"):
    """How to run a program, and the savepoint to start from."""

    allow_non_restored_state: bool | None = None
    savepoint_path: str | None = None
    claim_mode: Literal["CLAIM", "NO_CLAIM", "LEGACY"] | None = None
    restore_mode: Literal["CLAIM", "NO_CLAIM", "LEGACY"] | None = None
    application_id: HexId | None = None


class Started(msgspec.Struct, frozen=True):
    """The ids of the program's first job and of the program."""

    jobid: str
    application_id: str = msgspec.field(name="applicationId")


class ApplicationStarted(msgspec.Struct, frozen=True):
    """The id of the program."""

    applicationid: str


class ProgramPlan(msgspec.Struct, frozen=True):
    """A plan, as in `/jobs/:jobid/plan`."""

    plan: Plan


class Program(msgspec.Struct, frozen=True, rename="kebab"):
    """A program (times in ms since the epoch; the end is -1 while it runs)."""

    id: str
    name: str
    status: Literal["RUNNING", "FINISHED", "CANCELED", "FAILED"]
    process: int
    start_time: int
    end_time: int
    exit_code: int | None
    jobs: list[str]
    failure: str | None


class ProgramList(msgspec.Struct, frozen=True):
    """All programs that run, and the remembered ones that have ended."""

    programs: list[Program]


class Output(msgspec.Struct, frozen=True):
    """A program's output from a byte offset on, and the next offset."""

    text: str
    next: int


def jars(call: Call) -> Jars:
    """List the uploaded programs, newest first."""
    files = _do(call, lambda programs: programs.uploads())
    return Jars(f"http://localhost:{call.context.port}", [_jar(upload) for upload in files])


def _jar(upload: Uploaded) -> Jar:
    return Jar(upload.upload_id, upload.name, upload.at_ms, [Entry(name) for name in upload.entries])


def upload(call: Call) -> JarUploaded:
    """Store a program."""
    _do(call, lambda programs: None)
    name, data = parse_form_file(call.content_type, call.body)
    return JarUploaded(_do(call, lambda programs: programs.upload(name, data)).upload_id)


def remove(call: Call) -> Empty:
    """Delete an uploaded program."""
    _do(call, lambda programs: programs.remove(call.path["jarid"]))
    return Empty()


def plan(call: Call) -> ProgramPlan:
    """Return the plan of a program's first job."""
    submission = _submission(call, call.json(PlanRequest))
    result = _do(call, lambda programs: programs.plan(call.path["jarid"], submission))
    return ProgramPlan(msgspec.convert(result, Plan))


def run(call: Call) -> Started:
    """Run a program, and answer when it has begun its first job."""
    submission = _run_submission(call, call.json(RunRequest))

    def begin(programs: Programs) -> ProgramView:
        begun = programs.run(call.path["jarid"], submission)
        return programs.wait_for_job(begun.program_id, FIRST_JOB_SECONDS)

    view = _do(call, begin)
    if view.jobs:
        return Started(view.jobs[0], view.program_id)
    if view.status is ProgramStatus.RUNNING:
        where = f"/programs/{view.program_id}"
        raise RestError(504, f"the program has begun no job in {FIRST_JOB_SECONDS:g} s and goes on; {where} shows it")
    if view.exit_code == 0:
        raise bad_request("The program executes no job.")
    raise bad_request(f"The program ended with {view.exit_code} before it began a job.\n{view.failure or ''}".strip())


def run_application(call: Call) -> ApplicationStarted:
    """Run a program, and answer at once."""
    submission = _run_submission(call, call.json(RunRequest))
    return ApplicationStarted(_do(call, lambda programs: programs.run(call.path["jarid"], submission)).program_id)


def programs(call: Call) -> ProgramList:
    """List all programs."""
    return ProgramList([_program(view) for view in _do(call, lambda programs: programs.programs())])


def program(call: Call) -> Program:
    """Return one program."""
    return _program(_do(call, lambda programs: programs.program(call.path["programid"])))


def output(call: Call) -> Output:
    """Return the output of a program."""
    begin = call.query.get("from", "0")
    if not (begin.isascii() and begin.isdigit() and len(begin) <= 18):
        raise bad_request(f"from must be a number of bytes, not {begin[:50]!r}")
    return Output(*_do(call, lambda programs: programs.output(call.path["programid"], int(begin))))


def end(call: Call) -> Empty:
    """End a program."""
    _do(call, lambda programs: programs.end(call.path["programid"]))
    return Empty()


def _program(view: ProgramView) -> Program:
    return Program(
        view.program_id,
        view.name,
        view.status.value,
        view.process_id,
        view.began_ms,
        -1 if view.ended_ms is None else view.ended_ms,
        view.exit_code,
        list(view.jobs),
        view.failure,
    )


def _submission(call: Call, request: PlanRequest) -> Submission:
    """Build the submission from the body; the query supplies missing fields."""
    if request.job_id is not None:
        raise bad_request("jobId is not supported: a job gets its id when the program begins it")
    parallelism = request.parallelism
    if parallelism is None and (text := call.query.get("parallelism")) is not None:
        if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 31):
            raise bad_request(f"parallelism must be a number of at least 1, not {text[:50]!r}")
        parallelism = int(text)
    arguments = request.program_args_list
    if arguments is None:
        arguments = [part for part in call.query.get("programArg", "").split(",") if part]
    options = dict(request.flink_configuration or {})
    if parallelism is not None:
        options[PARALLELISM.key()] = str(parallelism)
    return Submission(tuple(arguments), request.entry_class or call.query.get("entry-class"), options)


def _run_submission(call: Call, request: RunRequest) -> Submission:
    known = _submission(call, request)
    options = dict(known.options)
    path = request.savepoint_path or call.query.get("savepointPath")
    allows = request.allow_non_restored_state
    if allows is None and "allowNonRestoredState" in call.query:
        allows = call.query["allowNonRestoredState"].lower() == "true"
    mode = request.claim_mode or request.restore_mode
    if path:
        options["execution.state-recovery.path"] = path
    if allows:
        options["execution.state-recovery.ignore-unclaimed-state"] = "true"
    if mode is not None:
        options["execution.state-recovery.claim-mode"] = mode
    return Submission(known.arguments, known.entry, options, request.application_id)


def _do(call: Call, action: Callable[[Programs], T]) -> T:
    """Call the session, and turn its errors into HTTP errors with the same message."""
    if call.context.programs is None:
        raise not_found("This server takes no programs: it belongs to one. Start a session with penstock session start")
    try:
        return action(call.context.programs)
    except MissingPathError as error:
        raise not_found(str(error)) from error
    except (WrongValueError, OperationError) as error:
        raise bad_request(str(error)) from error


_JAR = "/jars/:jarid"
_ENTRY = Parameter("entry-class", "The module to run.")
_PARALLELISM = Parameter("parallelism", "parallelism.default.", kind="integer")
_ARGUMENTS = Parameter("programArg", "The program's arguments, separated by commas.")
_RUN = (
    _ENTRY,
    _PARALLELISM,
    _ARGUMENTS,
    Parameter("savepointPath", "The savepoint or checkpoint to begin from."),
    Parameter("allowNonRestoredState", "Whether state of operators that are gone is left.", kind="boolean"),
)
_PLAN = (_ENTRY, _PARALLELISM, _ARGUMENTS)
_PROGRAM = "/programs/:programid"
ROUTES = [
    Route("GET", "/jars", jars, "The programs that were uploaded.", Jars, access="reveals"),
    Route("POST", "/jars/upload", upload, "Uploads a program.", JarUploaded, access="changes", is_upload=True),
    Route("DELETE", _JAR, remove, "Deletes an uploaded program.", Empty, access="changes"),
    Route("GET", f"{_JAR}/plan", plan, "The plan of a program.", ProgramPlan, access="changes", query=_PLAN),
    Route(
        "POST",
        f"{_JAR}/plan",
        plan,
        "The plan of a program.",
        ProgramPlan,
        access="changes",
        query=_PLAN,
        body=PlanRequest,
    ),
    Route(
        "POST",
        f"{_JAR}/run",
        run,
        "Runs a program up to its first job, which goes on.",
        Started,
        access="changes",
        query=_RUN,
        body=RunRequest,
    ),
    Route(
        "POST",
        f"{_JAR}/run-application",
        run_application,
        "Begins to run a program.",
        ApplicationStarted,
        202,
        "changes",
        _RUN,
        RunRequest,
    ),
    Route("GET", "/programs", programs, "The programs that run or have ended.", ProgramList, access="reveals"),
    Route("GET", _PROGRAM, program, "One of them.", Program, access="reveals"),
    Route("DELETE", _PROGRAM, end, "Cancels a program's jobs, and ends it.", Empty, 202, "changes"),
    Route(
        "GET",
        f"{_PROGRAM}/output",
        output,
        "What a program has printed.",
        Output,
        access="reveals",
        query=(Parameter("from", "The byte to begin at.", kind="integer"),),
    ),
]
