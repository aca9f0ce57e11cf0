"""Run a command in a fork of the process of forked_commands.py: SOCKET PROGRAM [ARGUMENT ...].

This file imports nothing slow. The fork gets this process's standard streams, folder
and environment, and its connection to a launcher of MPI.
"""
import json
import os
import socket
import sys


def main(path, *argv):
    """Send a command to the server at `path`; return the exit code of its fork."""
    streams = [0, 1, 2]
    if "PMI_FD" in os.environ:  # how MPICH's launcher talks with a rank
        streams.append(int(os.environ["PMI_FD"]))
    request = json.dumps({"argv": argv, "folder": os.getcwd(), "environment": {**os.environ},
                          "streams": streams}).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [len(request).to_bytes(8, "little")], streams)
        server.sendall(request)
        answer = server.recv(8)
    if not answer:
        sys.exit("the server of forked commands has ended")
    code = int.from_bytes(answer, "little", signed=True)
    if code < 0:  # a signal ended the fork
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
