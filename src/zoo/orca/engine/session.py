"""Starting Spark in this process and stopping it so that nothing is left: no JVM, file, variable, handler or thread."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.orca.engine.java import find_java, make_java_home
from zoo.orca.engine.spark_settings import DAEMON, LOOPBACK, SparkSettings
from zoo.orca.engine.traces import Traces, await_end, descendants
from zoo.orca.errors import ContextError, InvalidArgumentError
from zoo.orca.optional import require

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)

APP_NAME = "orca"
LONGEST_SOCKET_PATH = 103  # macOS; Linux has room for four more
SOCKET_NAME_LENGTH = len("/.") + len(str(uuid.UUID(int=0))) + len(".sock")  # as Spark names them
# Spark keeps within the batch: Arrow need not look at every number whether it does.
ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true"
LOG_LEVELS = ("ALL", "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF")

LOG_CONFIG = """status = error
rootLogger.level = {level}
rootLogger.appenderRefs = console{also_file}
rootLogger.appenderRef.console.ref = console
rootLogger.appenderRef.console.level = {console_level}
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""
LOG_FILE_CONFIG = """rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


@dataclass
class _Session:
    """A SparkContext that was started here, and what must go when it stops."""

    context: SparkContext
    folder: Path
    traces: Traces
    gateway: Any = None
    scratch: tuple[Path, ...] = field(default_factory=tuple)
    owner: int = field(default_factory=os.getpid)

    def close(self) -> None:
        if self.gateway is not None:
            shut_gateway(self.gateway)
        self.traces.undo()
        for folder in (self.folder, *self.scratch):
            shutil.rmtree(folder, ignore_errors=True)


_lock = threading.RLock()
_session: _Session | None = None


def active_spark_context() -> SparkContext | None:
    """The SparkContext that is active in this process, whoever started it; pyspark is not loaded to find out."""
    pyspark = sys.modules.get("pyspark")
    context = getattr(getattr(pyspark, "SparkContext", None), "_active_spark_context", None)
    return context if getattr(context, "_jsc", None) is not None else None


def spark_log_file() -> Path | None:
    """Where Spark's log goes now if it was redirected; the file goes when Spark stops."""
    path = _session.folder / "spark.log" if _session is not None else None
    return path if path is not None and path.exists() else None


def start_spark(settings: SparkSettings, log_level: str = "WARN", redirect_log: bool = True) -> SparkContext:
    """The active SparkContext, or a new one made from the settings."""
    global _session
    if log_level.upper() not in LOG_LEVELS:
        raise InvalidArgumentError(f"spark_log_level must be one of {', '.join(LOG_LEVELS)}, but is {log_level!r}.")
    with _lock:
        active = active_spark_context()
        if active is not None:
            return active
        stop_spark()  # a user may have called sc.stop(): its JVM and folder are still there
        _session = _start(settings, log_level.upper(), redirect_log)
        return _session.context


def stop_spark() -> None:
    """Stop the active SparkContext, and remove everything that `start_spark` made; safe to call at any time."""
    global _session
    with _lock:
        session, _session = _session, None
        context = active_spark_context()
        if context is not None:
            _stop_context(context)
        if session is not None:
            session.close()


def _stop_at_exit() -> None:
    if _session is not None and _session.owner == os.getpid():  # a forked child must not stop its parent's Spark
        stop_spark()


# Registered first, it is called last, when all that runs on Spark is closed: for scripts that never stop it.
atexit.register(_stop_at_exit)


def shut_gateway(gateway: Any) -> None:
    """End the JVM behind a gateway and every process below it, and let pyspark start another one later."""
    from py4j.clientserver import FinalizerWorker
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    processes = descendants(gateway.proc.pid)
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when its stdin does
    await_end(processes)
    gateway.proc.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None
    # Still there if the user stopped the context and not the session; no later Spark could stop it.
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    for thread in threading.enumerate():
        if isinstance(thread, FinalizerWorker):
            thread.join(timeout=5)


def _start(settings: SparkSettings, log_level: str, redirect_log: bool) -> _Session:
    pyspark = require("pyspark", "Spark")
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    launching = not submitted and pyspark.SparkContext._gateway is None
    folder = Path(tempfile.mkdtemp(prefix="orca-spark-"))
    try:
        variables = dict(settings.environment)
        if launching:
            variables |= _launch_variables(settings, folder)
            _write_log_config(folder, log_level, redirect_log)
        with Traces(variables) as traces:
            context = _submitted_context(settings) if submitted else _launched_context(settings, folder)
    except Exception as error:
        reason = str(error)  # py4j asks the JVM for the text, so before it goes
        _clean_failed_start(folder, settings.scratch, launching)
        if type(error).__module__.startswith(("py4j", "pyspark")):
            raise ContextError(f"Spark did not start on {settings.master}: {reason}") from None
        raise
    traces.undo_variables(variables)  # only the start needs them
    if not launching and not redirect_log:
        context.setLogLevel(log_level)
    gateway = pyspark.SparkContext._gateway if launching else None
    return _Session(context, folder, traces, gateway, settings.scratch)


def _launched_context(settings: SparkSettings, folder: Path) -> SparkContext:
    from pyspark import SparkConf, SparkContext

    conf = SparkConf().setAll(list(_conf(settings, folder).items()))
    SparkContext._ensure_initialized(conf=conf)
    # Given only now: what the JVM is launched with can be read by everybody on this machine.
    conf.setAll(list(settings.secrets.items()))
    return SparkContext(conf=conf)


def _conf(settings: SparkSettings, folder: Path) -> dict[str, str]:
    asked = settings.conf
    of_driver = [
        f'"-Dlog4j2.configurationFile=file:{folder / "log4j2.properties"}"',
        f'"-Dderby.system.home={folder}"',
        f'"-Djava.io.tmpdir={folder}"',  # what a JVM that is killed could not remove goes with the folder
    ]
    values = {
        "spark.app.name": settings.app_name or APP_NAME,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if settings.master is not None:
        values["spark.master"] = settings.master
    if is_loopback(settings.master):
        values |= {
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.authenticate": "true",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder),
            # Workers find the modules beside the script, as the driver does.
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path),
            "spark.python.daemon.module": DAEMON,
            # As queries have it: tasks with other variables would have another daemon, which imports all again.
            "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
            **_sockets_in(folder),
        }
    options: dict[str, list[str]] = {
        "spark.driver.extraJavaOptions": of_driver,
        "spark.executor.extraJavaOptions": [],
    }
    merged = {key: " ".join([*ours, ARROW_OPTIONS, asked.get(key, "")]).strip() for key, ours in options.items()}
    return values | asked | merged


def _sockets_in(folder: Path) -> dict[str, str]:
    """Let the JVM and its Python workers talk over sockets that are files, in a folder nobody else can enter.

    Over loopback each task waits for acknowledgements, which Linux delays by 40 ms: longer than most tasks take."""
    if len(os.fsencode(folder)) + SOCKET_NAME_LENGTH > LONGEST_SOCKET_PATH:
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": str(folder)}


def _submitted_context(settings: SparkSettings) -> SparkContext:
    """Under spark-submit its own settings win, and ours fill what it leaves open."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    conf = SparkConf()
    ours = {"spark.sql.execution.arrow.pyspark.enabled": "true"} | settings.conf
    for key, value in ours.items():
        conf.setIfMissing(key, value)
    conf.setIfMissing("spark.master", settings.master or "local[*]")
    conf.setIfMissing("spark.app.name", settings.app_name or APP_NAME)
    return SparkContext(conf=conf)


def is_loopback(master: str | None) -> bool:
    """Whether driver and executors are all on this machine."""
    return master is not None and master.startswith(("local", f"spark://{LOOPBACK}:"))


def _launch_variables(settings: SparkSettings, folder: Path) -> dict[str, str]:
    python = settings.python or os.environ.get("PYSPARK_PYTHON") or sys.executable
    variables = {
        "JAVA_HOME": str(make_java_home(folder, find_java())),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON") or sys.executable,
    }
    if is_loopback(settings.master):
        variables["SPARK_LOCAL_IP"] = LOOPBACK
    return variables


def _write_log_config(folder: Path, level: str, redirect: bool) -> None:
    config = LOG_CONFIG.format(
        level=level, also_file=", file" if redirect else "", console_level="FATAL" if redirect else "ALL"
    )
    if redirect:
        config += LOG_FILE_CONFIG.format(file=folder / "spark.log")
    (folder / "log4j2.properties").write_text(config)


def _stop_context(context: SparkContext) -> None:
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession
    try:
        if session is not None:
            session.stop()
        context.stop()
    except (Py4JError, OSError) as error:
        logger.warning("Spark's JVM was gone before it was stopped: %s", error)
        context.stop()  # the first call gave up at the JVM; this one ends what runs in this process
        SparkSession._instantiatedSession = None


def _clean_failed_start(folder: Path, scratch: tuple[Path, ...], launched: bool) -> None:
    from pyspark import SparkContext

    if launched and SparkContext._gateway is not None:
        shut_gateway(SparkContext._gateway)
    for path in (folder, *scratch):
        shutil.rmtree(path, ignore_errors=True)
