"""FedNova (Wang et al. 2020, arXiv 2007.07481): clients that took more steps do not pull harder."""

from collections.abc import Mapping

from torch import Tensor

from fed.aggregators.base import Aggregation
from fed.aggregators.mean import Mean
from fed.update import Update, is_module


class FedNova(Mean):
    """θ ← θ + τ Σ p_i (θ_i − θ)/τ_i, p_i a client's share, τ_i its number of updates, τ = Σ p_i τ_i.

    With equal numbers it is FedAvg. The paper's normaliser for plain SGD is τ_i; Adam's steps have about the same
    length whatever the gradient, so τ_i is the normaliser for it too.
    """

    def _reset(self) -> None:
        super()._reset()
        self.size: dict[str, float] = {}  # module → Σ p_i, before p is made to sum to one
        self.progress: dict[str, float] = {}  # module → Σ p_i τ_i

    def weigh(self, update: Update) -> list[float]:
        return _by_step(super().weigh(update), update)

    def weigh_module(self, update: Update, module: str, usual: list[float]) -> list[float]:
        sizes = super().weigh_module(update, module, super().weigh(update))
        self.size[module] = self.size.get(module, 0.0) + sum(sizes)
        moved = sum(size * steps for size, steps in zip(sizes, update.steps, strict=True))
        self.progress[module] = self.progress.get(module, 0.0) + moved
        return _by_step(sizes, update)

    def finalise(self, state: Mapping[str, Tensor]) -> Aggregation:
        """The mean with weights p_i/τ_i, its step stretched by τ Σ p_i/τ_i."""
        stretch = {
            name: self.progress[name] * sum(self.weights[name].values()) / size**2
            for name, size in self.size.items()
            if size > 0 and is_module(name)
        }
        mean = super().finalise(state)
        new = {
            name: (state[name] + by * (mean.state[name].double() - state[name])).to(state[name].dtype)
            for name, by in stretch.items()
            if abs(by - 1) > 1e-12
        }
        return Aggregation(mean.state | new, mean.weights, mean.module_weights)


def _by_step(sizes: list[float], update: Update) -> list[float]:
    return [size / max(1, steps) for size, steps in zip(sizes, update.steps, strict=True)]
