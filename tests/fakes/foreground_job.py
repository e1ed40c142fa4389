"""Run a command as a foreground job: `python tests/fakes/foreground_job.py COMMAND …`.

It is a process group with a parent in the same terminal, as a shell starts it. Otherwise the
kernel does not stop it at Ctrl+Z. Unlike a shell, the parent leaves it the terminal while it is
stopped, so that a test can continue it by a signal.
"""

import os
import signal
import sys


def main(command: list[str]) -> int:
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execvp(command[0], command)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
