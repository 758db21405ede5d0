"""Is `weft` to the scripts of tests: a process that lets a copy of a warm one run the command on its streams.

It is copied to where the socket is, and must start at once: no import that it can do without.
"""

import json
import os
import signal
import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(os.path.join(os.path.dirname(sys.argv[0]), "socket"))
    asked = (json.dumps([sys.argv, os.getcwd(), dict(os.environ)]) + "\n").encode()
    socket.send_fds(connection, [asked[:1]], [0, 1, 2])
    connection.sendall(asked[1:])
    told = connection.makefile()
    pid = int(told.readline())
    for passed_on in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Shells let programs in the background ignore the first.
        if signal.getsignal(passed_on) is not signal.SIG_IGN:
            signal.signal(passed_on, lambda number, _: os.kill(pid, number))
    code = int(told.readline())
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
