"""Locks by redis-py's Lock, on a quorum of nodes, as it is told on standard input.

Each line is a JSON object: {"op": "acquire", "name": ..., "ttl": milliseconds}, or "release" or "extend" of what
was acquired. The answer is one too: {"ok": ..., "value": ...}. The arguments are the nodes, as host:port.
"""

import json
import sys
import uuid

import redis

nodes = []
for addr in sys.argv[1:]:
    host, port = addr.rsplit(":", 1)
    nodes.append(redis.Redis(host=host, port=int(port), socket_timeout=5))
quorum = len(nodes) // 2 + 1
held = {}


def each(locks, call):
    """Calls every lock, and tells which of them did as asked."""
    done = []
    for lock in locks:
        try:
            if call(lock):
                done.append(lock)
        except redis.exceptions.LockError:
            pass
    return done


def acquire(name, ttl):
    value = uuid.uuid4().hex
    locks = [node.lock(name, timeout=ttl / 1000, thread_local=False) for node in nodes]
    granted = each(locks, lambda lock: lock.acquire(blocking=False, token=value))
    if len(granted) < quorum:
        each(granted, lambda lock: lock.release() or True)
        return {"ok": False}
    held[name] = granted
    return {"ok": True, "value": value}


def release(name):
    return {"ok": len(each(held.pop(name, []), lambda lock: lock.release() or True)) >= quorum}


def extend(name, ttl):
    extended = each(held.get(name, []), lambda lock: lock.extend(ttl / 1000, replace_ttl=True))
    return {"ok": len(extended) >= quorum}


ops = {"acquire": acquire, "release": release, "extend": extend}
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps(ops[request.pop("op")](**request)), flush=True)
