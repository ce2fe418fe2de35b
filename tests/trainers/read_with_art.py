"""Runs in ART's environment: read a dataset with ART's own reader, with duckdb and with polars; print JSON."""

import json
import sys

import duckdb
import polars as pl
from art.utils.trajectory_logging import read_trajectory_groups_parquet

FIELDS = ("reward", "metrics", "metadata", "logs", "messages_and_choices")


def main(path: str) -> None:
    groups = read_trajectory_groups_parquet(path)
    turns = "SELECT unnest(turns, recursive := true) FROM (SELECT rollout_id, turns FROM read_parquet(?)) ORDER BY ALL"
    frame = pl.read_parquet(path).select("rollout_id", "turns").explode("turns").unnest("turns")
    messages = "SELECT reward, messages FROM read_parquet(?) ORDER BY group_index, rollout_id"
    answer = {
        "groups": [[{name: getattr(one, name) for name in FIELDS} for one in group.trajectories] for group in groups],
        "rows": duckdb.execute(messages, [path]).fetchall(),
        "duckdb_turns": len(duckdb.execute(turns, [path]).fetchall()),
        "polars_token_ids": frame.sort("rollout_id", "call", "choice")["token_ids"].to_list(),
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
