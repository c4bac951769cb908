"""Debian's kcat (librdkafka 2.0.2)."""

import subprocess


def kcat(broker, *arguments, stdin=b"", timeout=30, check=True):
    """Runs kcat to its end and answers its standard output, in bytes."""
    done = subprocess.run(["kcat", "-b", broker, *arguments], input=stdin, capture_output=True, timeout=timeout)
    if check:
        assert done.returncode == 0, f"kcat {' '.join(arguments)} ended with {done.returncode}\n{done.stderr.decode(errors='replace')}"
        return done.stdout
    return done.returncode, done.stdout, done.stderr


def start(broker, *arguments, **options):
    return subprocess.Popen(["kcat", "-b", broker, *arguments], stdin=subprocess.DEVNULL, **options)
