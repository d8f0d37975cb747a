#!/usr/bin/env python3
"""Prints the metadata of a request, and every newer version of it. Usage: watch.py FILE"""
import json
import select
import sys

while True:
    with open(sys.argv[1]) as file:
        # The same document once for each version of the API, the newest first.
        document, _ = json.JSONDecoder().raw_decode(file.read())
        for request in document["requests"]:
            for device in request["devices"]:
                print(document["metadata"]["generation"], device["name"], device["attributes"], flush=True)
        # An open file stays as it is; POLLPRI says that there is a newer one.
        poll = select.poll()
        poll.register(file, select.POLLPRI)
        poll.poll()
