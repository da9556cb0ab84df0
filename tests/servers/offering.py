"""Offers what it is told to: `offering.py '{"tools": ["push"], "resources": ["x://1"], "templates": [], "prompts": []}'`.

Each prompt takes the arguments in `"fields"`. With `"parts": 2` prompts have two messages and resources two parts;
resources have the `"meta"`. A call answers with the server's label, the tool and the arguments that it got. With `"wait": "PATH"` nothing is
listed before that file exists.
"""

import json
import sys
import time
from pathlib import Path

from jsonrpc import RefusalError, serve, text, tool

offer = json.loads(sys.argv[1])
label = offer.get("label", "?")
tools = offer.get("tools", ())
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": True}


def initialize(params):
    return {
        "protocolVersion": params["protocolVersion"],
        "capabilities": {
            "tools": {},
            "resources": {"subscribe": True},
            "prompts": {},
            "completions": {},
        },
        "serverInfo": {"name": label, "version": "1"},
    }


def listing(_):
    waits_for = offer.get("wait")
    while waits_for and not Path(waits_for).exists():
        time.sleep(0.01)
    return {"tools": [tool(name, inputSchema=SCHEMA) for name in tools]}


def call(params, _):
    name, arguments = params["name"], params.get("arguments")
    if name not in tools:
        raise RefusalError(-32602, f"{label} has no tool {name}")
    return text(f"{label}/{name} {json.dumps(arguments, sort_keys=True)}")


def read(params):
    if params["uri"].startswith("refuse:"):
        raise RefusalError(-32002, "not this one")
    texts = [f"{label} read {params['uri']}", f"{label} read it again"][: offer.get("parts", 1)]
    return {"contents": [{"uri": params["uri"], "text": text} for text in texts]}


def prompt(params):
    if params["name"] == "refused":
        raise RefusalError(-32602, "not this one")
    said = f"{label} {params['name']} {json.dumps(params.get('arguments'))}"
    turns = [("user", said), ("assistant", "Yes.")][: offer.get("parts", 1)]
    return {"messages": [{"role": role, "content": {"type": "text", "text": said}} for role, said in turns]}


def complete(params):
    if params["argument"]["name"] == "refused":
        raise RefusalError(-32602, "not this one")
    return {"completion": {"values": [json.dumps(params["ref"])]}}


serve(
    {
        "initialize": initialize,
        "tools/list": listing,
        "tools/call": call,
        "resources/list": lambda _: {
            "resources": [
                {"uri": uri, "name": uri, "size": len(uri), "_meta": offer.get("meta")}
                for uri in offer.get("resources", ())
            ]
        },
        "resources/templates/list": lambda _: {
            "resourceTemplates": [{"uriTemplate": uri, "name": uri} for uri in offer.get("templates", ())]
        },
        "resources/read": read,
        "resources/subscribe": lambda _: {},
        "resources/unsubscribe": lambda _: {},
        "prompts/list": lambda _: {
            "prompts": [
                {"name": name, "arguments": [{"name": field} for field in offer.get("fields", ())]}
                for name in offer.get("prompts", ())
            ]
        },
        "prompts/get": prompt,
        "completion/complete": complete,
    }
)
