"""The compile service: serialized IR in, selected programs, source, machine code and reasons out.

    python -m selector serve --port 8080

Requests come in over HTTP (``app``), are looked up by what they ask (``desk``, ``store``), and
what is not known yet is computed by worker processes (``pool``, ``worker``, ``jobs``). A request
is data: the text or JSON form of a program, the name of a target, rules as text. ``client`` is the
other end, with the standard library alone; ``selector`` works without FastAPI.
"""
