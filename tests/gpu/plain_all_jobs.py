"""All jobs of plain pipelines, in the order in which they are run and shown."""

from plain_chain_jobs import CHAINS
from plain_jobs import PICTURES
from plain_model_jobs import MODELS
from plain_other_jobs import OTHERS
from plain_signal_jobs import SIGNALS

JOBS = (*PICTURES, *CHAINS, *MODELS, *OTHERS, *SIGNALS)
