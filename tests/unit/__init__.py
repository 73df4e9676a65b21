"""Tests of one module at a time, each at the module's own path below src/sparkinesis.

The files of this folder itself test what concerns all modules: the layers, public names, errors,
documents and promises.
"""
