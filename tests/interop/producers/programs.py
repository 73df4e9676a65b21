"""The programs, and in what their records differ from those that they are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Language = Literal["Python", "Node", "Go", "Rust", "Java"]


@dataclass(frozen=True, slots=True)
class Program:
    """A small program that puts records as the users of a library do.

    source: its file, or its folder, in the folder of its language.
    calm, hard: the kinds of `judging.Verdict` in which its records differ, in a play without and
    with refused records and a reshard. may: those in which they differ now and then.
    """

    name: str
    language: Language
    source: str
    calm: frozenset[str] = frozenset()
    hard: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()
    requirements: tuple[str, ...] = ()
    tls: bool = False
    """It speaks TLS and nothing else."""


def _kinds(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BOTO3 = "boto3==1.44.8"
AGG = ("aws-kinesis-agg==1.2.3", "protobuf==7.36.2", "six==1.17.0")
_ASYNC = ("async-kinesis==3.0.1", "aiobotocore==3.10.0", *AGG)

PROGRAMS = (
    Program(
        "boto3 1.44.8, answer not read",
        "Python",
        "boto3_put_records.py",
        hard=_kinds("lost doubled"),
        requirements=(_BOTO3,),
    ),
    Program(
        "boto3 1.44.8, refused put again",
        "Python",
        "boto3_again.py",
        hard=_kinds("doubled out_of_order"),
        requirements=(_BOTO3,),
    ),
    Program(
        "aws-kinesis-agg 1.2.3",
        "Python",
        "aws_kinesis_agg.py",
        calm=_kinds("scattered"),
        hard=_kinds("doubled scattered"),
        requirements=(*AGG, _BOTO3),
    ),
    Program(
        "async-kinesis 3.0.1, KPL format",
        "Python",
        "async_kinesis.py",
        calm=_kinds("relabelled"),
        hard=_kinds("doubled relabelled"),
        may=_kinds("out_of_order scattered"),  # the outer keys are random
        requirements=_ASYNC,
    ),
    Program(
        "async-kinesis 3.0.1, with keys",
        "Python",
        "async_kinesis_keys.py",
        hard=_kinds("doubled out_of_order"),
        requirements=_ASYNC,
    ),
    Program(
        "kiner 0.8.0",
        "Python",
        "kiner.py",
        hard=_kinds("doubled"),
        may=_kinds("out_of_order"),  # its threads put at the same time
        requirements=("kiner==0.8.0", _BOTO3),
    ),
    Program(
        "kinesis-producer 0.2.1",
        "Python",
        "kinesis_producer.py",
        calm=_kinds("joined relabelled scattered wrapped"),
        hard=_kinds("doubled joined relabelled scattered wrapped"),
        may=_kinds("out_of_order"),  # the keys are random
        requirements=("kinesis-producer==0.2.1", "six==1.17.0", _BOTO3),
    ),
    Program(
        "django-logpipe 1.6.0",
        "Python",
        "django_logpipe.py",
        calm=_kinds("wrapped"),
        hard=_kinds("doubled wrapped"),
        requirements=(
            "django-logpipe==1.6.0",
            "Django==5.2.19",
            "djangorestframework==3.18.3",
            _BOTO3,
        ),
    ),
    Program(
        "AWS SDK for JavaScript 3.1143.0", "Node", "sdk.mjs", hard=_kinds("doubled out_of_order")
    ),
    Program(
        "npm aws-kinesis-agg 4.2.8",
        "Node",
        "aws-kinesis-agg.mjs",
        calm=_kinds("relabelled scattered"),
        hard=_kinds("doubled relabelled scattered"),
    ),
    Program(
        "npm aws-kinesis-writable 4.3.0",
        "Node",
        "aws-kinesis-writable.mjs",
        calm=_kinds("wrapped"),
        hard=_kinds("doubled lost wrapped"),
        may=_kinds("out_of_order"),  # its calls are made at the same time
    ),
    Program(
        "lifion-kinesis 1.3.3",
        "Node",
        "lifion-kinesis.mjs",
        hard=_kinds("doubled out_of_order"),
    ),
    Program(
        "kinesis-streams 0.7.0",
        "Node",
        "kinesis-streams.mjs",
        calm=_kinds("wrapped"),
        hard=_kinds("doubled out_of_order wrapped"),
    ),
    Program("npm kinesis 1.2.2", "Node", "kinesis.mjs", hard=_kinds("doubled"), tls=True),
    Program("AWS SDK for Go 1.56.13", "Go", "sdk", hard=_kinds("doubled out_of_order")),
    Program(
        "a8m/kinesis-producer 0.2.0",
        "Go",
        "kinesis-producer",
        calm=_kinds("relabelled scattered"),
        hard=_kinds("out_of_order relabelled scattered"),
    ),
    Program(
        "Telegraf 1.36.4",
        "Go",
        "telegraf",
        calm=_kinds("wrapped"),
        hard=_kinds("doubled lost wrapped"),
    ),
    Program(
        "Benthos 4.27.0",
        "Go",
        "benthos",
        hard=_kinds("doubled"),
        may=_kinds("out_of_order"),  # its calls are made at the same time
    ),
    Program(
        "KPL 1.0.9",
        "Java",
        "kpl",
        hard=_kinds("doubled"),
        may=_kinds("out_of_order"),  # its daemon's threads pack at the same time
        tls=True,
    ),
    Program("Camel 4.18.0", "Java", "camel", hard=_kinds("doubled")),
    Program(
        "Beam 2.73.0",
        "Java",
        "beam",
        calm=_kinds("hash_keys out_of_order"),
        hard=_kinds("doubled hash_keys out_of_order"),
        may=_kinds("scattered"),  # its threads put aggregates for shards as they were
    ),
    Program(
        "Spring's Kinesis binder 4.0.5",
        "Java",
        "spring",
        calm=_kinds("wrapped"),
        hard=_kinds("doubled wrapped"),
        may=_kinds("lost out_of_order"),  # its calls are made at the same time, and cut at its end
    ),
    Program("Flink 1.15.2", "Java", "flink", hard=_kinds("doubled out_of_order")),
    Program(
        "Guardian's Logback appender 2.0.3",
        "Java",
        "logback",
        calm=_kinds("relabelled scattered"),
        hard=_kinds("relabelled scattered"),
        may=_kinds("doubled lost out_of_order"),  # it closes its client while calls are made
    ),
    Program("AWS SDK for Rust 1.130.0", "Rust", "sdk", hard=_kinds("doubled out_of_order")),
)
