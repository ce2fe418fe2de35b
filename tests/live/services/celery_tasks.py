"""Celery, with a folder as its broker."""

import os

from celery import Celery
from conversation import converse

folder = os.environ["BROKER_FOLDER"]
app = Celery("celery_tasks", broker="filesystem://")
app.conf.broker_transport_options = {"data_folder_in": folder, "data_folder_out": folder, "control_folder": folder}


@app.task
def answer(question: str) -> str:
    """Answer a question."""
    return converse(question)
