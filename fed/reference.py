"""Rows that belong to nobody's private data, on which clients show what their ratios are worth.

Either the public slice that the split set aside (`split.public`), or episodes that the broadcast policy plays in the
evaluation environments, anew in every round. Never rows of a client.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from data.batch import Batch
from data.dataset import Dataset
from data.errors import InputError
from data.sampler import Sampler
from data.shards import PUBLIC, Shards
from rl.learner import Learner

SOURCES = ("rollouts", "public")


class Reference:
    """At most `rows` rows, and what a cohort makes of them."""

    def __init__(self, batch: Batch):
        self.batch = batch  # [1, B]

    @classmethod
    def public(cls, sampler: Sampler, rows: int) -> "Reference":
        public = sampler.shards.public
        if not len(public):
            raise InputError("fed.reference=public needs a public slice: set split.public=0.05, or use rollouts.")
        return cls(_rows(sampler, public[np.linspace(0, len(public) - 1, min(rows, len(public))).astype(int)]))

    @classmethod
    def played(cls, sampler: Sampler, episodes: Dataset, rows: int) -> "Reference":
        """Of a policy's episodes, evenly over all of their steps; `sampler`: that of the clients' logs."""
        pieces = np.stack([episodes.starts, episodes.ends], axis=1)
        shards = Shards.of_pieces(episodes, pieces, np.full(len(pieces), PUBLIC), names=[])
        return cls.public(sampler.over(episodes, shards), rows)

    @torch.no_grad()
    def values(self, cohort: Learner) -> Mapping[str, Tensor]:
        """The learner's per-row values `[K, B]` by each client's own model."""
        return cohort.row_statistics(self.batch.repeated(cohort.clients))


def _rows(sampler: Sampler, rows: np.ndarray) -> Batch:
    places = torch.from_numpy(rows).to(sampler.device).unsqueeze(0)
    return sampler.gather(places, torch.empty(0, *places.shape, sampler.noise_shape[-1], device=sampler.device))
