"""OptiDICE (Lee et al. 2021, arXiv 2106.10783): offline policy optimisation by stationary distribution correction.

The dual (ν, λ) gives each logged row its ratio w = d*(s,a)/d_D(s,a): how often the best policy that stays near the
data would be there. The policy then imitates the rows in proportion to w. With
e(s,a,s') = r + γ(1−d)ν(s') − ν(s) and x = (e − λ)/α, w = max(0, (f')⁻¹(x)).

(ν, λ) has a gauge: ν − c, λ + (1−γ)c changes no ratio of a row that goes on. Where one starts in it matters:
`centred` starts ν at r̄/(1−γ), the value of the mean reward, so that x starts at (r − r̄)/α instead of r/α, and
a terminal state starts out as bad as it is. docs/learners.md tells what that does.
"""

import math

import torch
from torch import Tensor

from data.batch import Batch, Window
from data.errors import InputError
from rl.divergences import DIVERGENCES
from rl.learner import Learner, Losses, Metrics, Task
from rl.policies import TanhGaussian, TanhMixture

SPAN = 1e4  # how far λ is moved at most to make the mean ratio 1, in α
STEEPEST = 5.0  # slope of ν beyond which the gradient penalty begins (COptiDICE)


class OptiDICE(Learner):
    """Modules: nu, dual (λ and, if asked, the absorbing state's value), actor; advantage and behaviour if asked."""

    row_values = ("ratio",)

    def __init__(
        self,
        task: Task,
        clients: int,
        *,
        alpha: float,
        gamma: float,
        steps: int,
        divergence: str,
        gradient: str,
        starts: str,
        centred: bool,
        absorbing: bool,
        nu_networks: int,
        gradient_penalty: float,
        advantage: str,
        extraction: str,
        draw_rows: bool,
        ratios: str,
        defensive: float,
        normalise_ratios: bool,
        largest_ratio: float | None,
        refresh_every: int,
        warm_up: float,
        policy_loss: str,
        entropy: float,
        components: int,
        tau: float,
        actor_lr: float,
        nu_lr: float,
        lambda_lr: float,
        **common,
    ):
        if extraction == "projection" and advantage == "none":
            raise InputError("extraction=projection needs an advantage net: set algo.advantage=regression or minimax.")
        if extraction == "projection" and draw_rows:
            raise InputError("extraction=projection acts on all states of the data: set algo.draw_rows=false.")
        self.alpha, self.gamma, self.divergence = alpha, gamma, DIVERGENCES[divergence]
        self.window = (steps, gamma) if steps > 1 else None
        self.gradient, self.initial_states = gradient, starts == "episodes" and gradient == "full"
        self.centred, self.absorbing, self.nu_networks = centred, absorbing, nu_networks
        self.gradient_penalty, self.advantage, self.extraction = gradient_penalty, advantage, extraction
        self.broadcast_ratios, self.normalise_ratios = ratios == "broadcast", normalise_ratios
        self.largest_ratio, self.defensive = largest_ratio, defensive
        self.weighted_rows, self.refresh_every = draw_rows, refresh_every
        self.weighted_modules = ("actor",) if draw_rows else ()
        self.warm_up, self.policy_loss, self.entropy, self.components = warm_up, policy_loss, entropy, components
        self.by_progress = warm_up > 0
        self.noise_draws = int(extraction == "projection" or entropy > 0)
        self.target_of = {} if gradient == "full" else {"nu_target": "nu"}
        lr = {"nu": nu_lr, "dual": lambda_lr, "advantage": nu_lr, "multiplier": lambda_lr}
        super().__init__(task, clients, lr=lr | {"actor": actor_lr, "behaviour": actor_lr}, tau=tau, **common)

    def build(self, task: Task) -> None:
        self.actor = TanhGaussian(self.mlp(task.observations, 2 * task.actions))
        self.nu = self.mlp(task.observations, 1, heads=self.nu_networks)
        self.advantage_net = self.mlp(task.observations + task.actions, 1)
        self.behaviour = TanhMixture(
            self.mlp(task.observations, self.components * (1 + 2 * task.actions)), self.components
        )
        self.offset = task.reward_mean / (1 - self.gamma) if self.centred else 0.0
        self.bounds = {"nu_abs": task.reward_bound / (1 - self.gamma)} if task.reward_bound > 0 else {}
        self.frozen_dual: dict[str, Tensor] | None = None

    def initial(self, generator: torch.Generator) -> dict[str, Tensor]:
        """The last layers of ν and e start at zero: x is then a function of the reward alone."""
        rows = {
            "nu": self.nu.init_at_zero(generator),
            "dual": torch.zeros(1 + self.absorbing),  # λ, ν(absorbing)
            "actor": self.actor.network.init(generator),
        }
        if self.advantage != "none":
            rows["advantage"] = self.advantage_net.init_at_zero(generator)
        if self.advantage == "minimax":
            rows["multiplier"] = torch.zeros(1)  # λ_e
        if self.extraction == "projection":
            rows["behaviour"] = self.behaviour.network.init(generator)
        return rows

    def begin_round(self) -> None:
        """Keep the dual that was sent: with `ratios=broadcast` it weighs the whole round."""
        names = [name for name in ("nu", "dual", "advantage", "multiplier") if name in self.params]
        kept = {name: self.params[name].detach().clone() for name in names} if self.broadcast_ratios else None
        self.frozen_dual = kept

    def objectives(self, batch: Batch) -> list:
        steps = [self.fit_dual]
        if self.advantage != "none":
            steps.append(self.fit_advantage)
        if self.extraction == "projection":
            steps.append(self.fit_behaviour)
        if batch.progress >= self.warm_up:
            steps.append(self.project if self.extraction == "projection" else self.imitate)
        return steps

    # -- the dual -------------------------------------------------------------------------------------------------
    def value(self, theta: Tensor, observations: Tensor) -> Tensor:
        """ν(s) `[K, B]`: the least of its networks."""
        out = self.nu(theta, observations).squeeze(-1)
        return self.offset + (out if self.nu_networks == 1 else out.amin(1))

    def ahead(self, batch: Batch) -> Window:
        """What e looks at: the step to s', or the window of several steps."""
        if batch.window is not None:
            return batch.window
        return Window(batch.rewards, batch.next_observations, batch.terminals, torch.ones_like(batch.rewards))

    def residual(self, ahead: Window, value: Tensor, following: Tensor, dual: Tensor) -> Tensor:
        """e = (Σ_{k<m} γ^k r_k + γ^m ν(s_m) − ν(s)) / Σ_{k<m} γ^k, for m = 1 the paper's r + γν(s') − ν(s).

        After a terminal nothing follows, or the absorbing state.
        """
        end = dual[:, 1:2] if self.absorbing else 0.0
        discount = self.gamma**ahead.steps
        gain = ahead.rewards + discount * torch.where(ahead.terminals > 0, end, following) - value
        return gain * (1 - self.gamma) / (1 - discount)

    def regularised(self, x: Tensor, dual: Tensor, terminals: Tensor) -> Tensor:
        """[K] E[α f*(x)]; with an absorbing state each terminal row brings one more, which stays where it is."""
        term = self.alpha * self.divergence.conjugate(x)
        if not self.absorbing:
            return term.mean(1)
        stays = ((self.gamma - 1) * dual[:, 1] - dual[:, 0]) / self.alpha
        ended = terminals.mean(1)
        return (term.mean(1) + ended * self.alpha * self.divergence.conjugate(stays)) / (1 + ended)

    def fit_dual(self, batch: Batch) -> tuple[Losses, Metrics]:
        """One step on ν and one on λ (with the absorbing state's value), each with the other held."""
        dual, ahead = self.params["dual"], self.ahead(batch)
        states = [batch.observations, ahead.observations]
        if self.initial_states:
            states.append(batch.initial_observations)
        # One pass for all states: a wide matrix product is quicker than two or three narrow ones.
        widths = [part.shape[1] for part in states]
        value, following, *first = self.value(self.params["nu"], torch.cat(states, 1)).split(widths, 1)
        if self.gradient == "full":
            start = first[0].mean(1) * batch.initial_weight if first else value.mean(1)
            nu_loss = (1 - self.gamma) * start + self.full_dual(ahead, value, following)
        else:
            nu_loss = self.semi_dual(ahead, value, following)
        if self.gradient_penalty > 0:
            nu_loss = nu_loss + self.gradient_penalty * self.steepness(batch.observations)
        value, following = value.detach(), following.detach()
        x = (self.residual(ahead, value, following, dual) - dual[:, :1]) / self.alpha
        dual_loss = self.regularised(x, dual, ahead.terminals) + dual[:, 0]
        ratio = self.divergence.ratio(x.detach())
        metrics = {"ratio": ratio.mean(1), "nu_abs": value.abs().mean(1), "lambda": dual.detach()[:, 0].clone()}
        return {"nu": nu_loss, "dual": dual_loss}, metrics

    def full_dual(self, ahead: Window, value: Tensor, following: Tensor) -> Tensor:
        """E_D[α f*((e − λ)/α)]: with (1−γ) E_{s0}[ν(s0)] and λ it is the paper's L(ν, λ).

        The two expectations weigh a client by its rows and by its episodes; `initial_weight` sets that right.
        """
        dual = self.params["dual"].detach()
        x = (self.residual(ahead, value, following, dual) - dual[:, :1]) / self.alpha
        return self.regularised(x, dual, ahead.terminals)

    def semi_dual(self, ahead: Window, value: Tensor, following: Tensor) -> Tensor:
        """L(ν) = E[ν(s) + α f*((r + γν̄(s') − ν(s))/α)] with a target ν̄: quick, but normalised in each state.

        `orthogonal` (ODICE, Mao et al. 2024, arXiv 2402.00348) adds the part of the gradient through ν(s') that does
        not undo the gradient through ν(s).
        """
        nu, dual = self.params["nu"], self.params["dual"].detach()
        with torch.no_grad():
            target = self.value(self.targets["nu_target"], ahead.observations)
        x = self.residual(ahead, value, target, dual) / self.alpha
        pace = (1 - self.gamma) / (1 - self.gamma**ahead.steps)  # 1 for a single step
        loss = (pace * value + self.alpha * self.divergence.conjugate(x)).mean(1)
        if self.gradient == "semi":
            return loss
        carried = pace * self.gamma**ahead.steps * (1 - ahead.terminals)
        flow = (carried * self.divergence.ratio(x.detach()) * following).mean(1)
        (forward,) = torch.autograd.grad(loss.sum(), nu, retain_graph=True)
        (backward,) = torch.autograd.grad(flow.sum(), nu)
        along = (backward * forward).sum(1, keepdim=True) / forward.square().sum(1, keepdim=True).clamp_min(1e-12)
        step = (nu * (forward + backward - along * forward)).sum(1)  # its gradient is the direction to go
        return loss.detach() + step - step.detach()

    def steepness(self, observations: Tensor) -> Tensor:
        """[K] E[max(0, ‖∇ν(s)‖ − 5)²] (COptiDICE, Lee et al. 2022)."""
        observations = observations.detach().requires_grad_()
        out = self.nu.plain(self.params["nu"], observations)
        (slope,) = torch.autograd.grad(out.sum(), observations, create_graph=True)
        return (slope.norm(dim=-1) - STEEPEST).clamp_min(0).square().mean(1)

    # -- ratios ---------------------------------------------------------------------------------------------------
    def x(self, batch: Batch, params: dict[str, Tensor]) -> Tensor:
        """(e − λ)/α `[K, B]` of the rows, e from the advantage net where there is one."""
        if self.advantage != "none":
            return self.advantage_x(batch.observations, batch.actions, params)
        return (self.logged_residual(batch, params) - params["dual"][:, :1]) / self.alpha

    def logged_residual(self, batch: Batch, params: dict[str, Tensor]) -> Tensor:
        ahead = self.ahead(batch)
        value, following = (self.value(params["nu"], s) for s in (batch.observations, ahead.observations))
        return self.residual(ahead, value, following, params["dual"])

    def advantage_x(self, observations: Tensor, actions: Tensor, params: dict[str, Tensor]) -> Tensor:
        e = self.advantage_net(params["advantage"], torch.cat([observations, actions], -1)).squeeze(-1)
        multiplier = params["multiplier"] if self.advantage == "minimax" else params["dual"][:, :1]
        return (e - multiplier) / self.alpha

    @torch.no_grad()
    def row_weights(self, batch: Batch) -> Tensor:
        """(1−ε)w + ε: with E[w] = 1 a defensive mixture with the data, so that no part of an episode is lost."""
        ratio = self.divergence.ratio(self.x(batch, self.frozen_dual or self.params))
        if self.largest_ratio is not None:
            ratio = ratio.clamp_max(self.largest_ratio)
        return (1 - self.defensive) * ratio + self.defensive

    @torch.no_grad()
    def row_statistics(self, batch: Batch) -> dict[str, Tensor]:
        return {"ratio": self.divergence.ratio(self.x(batch, self.params))}

    @torch.no_grad()
    def renormalise(self, batch: Batch) -> None:
        """Move λ (with a minimax advantage its multiplier) so that the mean ratio on these rows is 1."""
        place = self.params["multiplier" if self.advantage == "minimax" else "dual"]
        low, high = (place[:, :1].clone() + sign * SPAN * self.alpha for sign in (-1, 1))
        for _ in range(60):  # the mean ratio falls as λ rises
            place[:, :1] = (low + high) / 2
            above = self.row_statistics(batch)["ratio"].mean(1, keepdim=True) > 1
            low, high = torch.where(above, place[:, :1], low), torch.where(above, high, place[:, :1])

    def fit_advantage(self, batch: Batch) -> tuple[Losses, Metrics]:
        """e_θ(s,a) removes the bias of the single s': regression E[(e − e_θ)²], or minimax
        E[α f(w_e) − w_e(e − λ_e)] with λ_e(1 − E[w_e]) for its multiplier."""
        with torch.no_grad():
            e = self.logged_residual(batch, self.params)
        if self.advantage == "regression":
            inputs = torch.cat([batch.observations, batch.actions], -1)
            fitted = self.advantage_net(self.params["advantage"], inputs).squeeze(-1)
            return {"advantage": (e - fitted).square().mean(1)}, {}
        multiplier = self.params["multiplier"]
        held = self.params | {"multiplier": multiplier.detach()}
        ratio = self.divergence.ratio(self.advantage_x(batch.observations, batch.actions, held))
        loss = (self.alpha * self.divergence.f(ratio) - ratio * (e - multiplier.detach())).mean(1)
        balance = multiplier.squeeze(1) * (1 - ratio.detach().mean(1))
        return {"advantage": loss, "multiplier": balance}, {}

    # -- the policy -----------------------------------------------------------------------------------------------
    def imitate(self, batch: Batch) -> tuple[Losses, Metrics]:
        """L(π) = −E_D[w log π(a|s)] (or w ‖a − tanh μ(s)‖²) − entropy · H(π); w is a factor, or rows are drawn so."""
        rows, weight = (batch.weighted, 1.0) if self.weighted_rows else (batch, self._policy_weight(batch))
        actor = self.params["actor"]
        if self.policy_loss == "squared":
            error = (rows.actions - self.actor.mode(actor, rows.observations)).square().sum(-1)
        else:
            error = -self.actor.log_prob(actor, rows.observations, rows.actions)
        loss = (weight * error).mean(1)
        if self.entropy > 0:
            loss = loss + self.entropy * self.actor.sample(actor, rows.observations, batch.noise[0])[1].mean(1)
        return {"actor": loss}, {}

    @torch.no_grad()
    def _policy_weight(self, batch: Batch) -> Tensor:
        ratio = self.row_weights(batch)
        return ratio / ratio.mean(1, keepdim=True).clamp_min(1e-12) if self.normalise_ratios else ratio

    def fit_behaviour(self, batch: Batch) -> tuple[Losses, Metrics]:
        """L(π_D) = −E_D[log π_D(u|s)], u the action before tanh."""
        log_prob = self.behaviour.log_prob(self.params["behaviour"], batch.observations, batch.actions)
        return {"behaviour": -log_prob.mean(1)}, {}

    def project(self, batch: Batch) -> tuple[Losses, Metrics]:
        """L(π) = −E_{s~D, a~π}[log w_e(s,a) − log π(u|s) + log π_D(u|s)], densities before tanh."""
        actor, dual = self.params["actor"], {name: p.detach() for name, p in self.params.items()}
        mean, log_std = self.actor.distribution(actor, batch.observations)
        u = mean + log_std.exp() * batch.noise[0]
        own = (-0.5 * batch.noise[0].square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)
        logged = self.behaviour.log_density(dual["behaviour"], batch.observations, u)
        source = dual if self.frozen_dual is None else self.frozen_dual
        log_ratio = self.divergence.log_ratio(self.advantage_x(batch.observations, torch.tanh(u), source))
        return {"actor": -(log_ratio - own + logged).mean(1)}, {"divergence": (own - logged).detach().mean(1)}
