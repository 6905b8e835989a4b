"""What the JVMs of the stack have in common: where they log."""

from __future__ import annotations

from pathlib import Path

_LOG4J2 = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p [%t] %m (%c{{1}})%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


def log4j2_option(log: Path, folder: Path) -> str:
    """Write a log4j2 configuration into `folder` that sends the log to the file `log`, at most 80 MB in all.

    Returns:
        The JVM option that makes a server use it.
    """
    file = folder / "log4j2.properties"
    file.write_text(_LOG4J2.format(log=log))
    return f"-Dlog4j2.configurationFile={file}"


def classpath(jars: list[Path]) -> str:
    """The jars as the JVM's ``-cp`` wants them."""
    return ":".join(str(jar) for jar in jars)
