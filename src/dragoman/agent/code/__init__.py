"""Code mode: a model writes a program that calls tools, in place of one call after the other.

`stubs` turns tools into typed Python modules, `sandbox` runs programs in an interpreter without access to the
machine, and `runner` joins the two: each call of a program is an ordinary tool call.
"""
