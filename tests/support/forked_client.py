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
    with ask(path, argv, os.environ, dict(zip(streams, streams))) as server:
        answer = server.recv(8)
    if not answer:
        sys.exit("the server of forked commands has ended")
    code = int.from_bytes(answer, "little", signed=True)
    if code < 0:  # a signal ended the fork
        os.kill(os.getpid(), -code)
    return code


def ask(path, argv, environment, streams):
    """Send a command to the server at `path`; return the socket that answers with its exit code.

    `streams` maps the file numbers of the fork to those of this process. If the socket
    is closed before the answer, the fork is killed.
    """
    request = json.dumps({"argv": argv, "folder": os.getcwd(), "environment": {**environment},
                          "streams": [*streams]}).encode()
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    socket.send_fds(server, [len(request).to_bytes(8, "little")], [*streams.values()])
    server.sendall(request)
    return server


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
