"""Every name that an output or an option prints, in two sentences and a formula.

Throughout, roll is the rollout policy (which sampled), theta the training policy, x a prompt, y a response to it, c the
context of a token; rho = theta / roll of a sampled token, d = log rho, R the reward in [0, 1].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bounds._checks import unknown
from bounds.masks.statistics import STATISTICS, TOKEN, TOKEN_STATISTICS
from bounds.questions.metrics import METRICS
from bounds.results import Standing
from bounds.rules.profile import FIELDS
from bounds.rules.unified import RULES


@dataclass(frozen=True, slots=True)
class Term:
    """What a name means: ``text``, at most a few sentences, and a ``formula`` (empty where words say it all)."""

    text: str
    formula: str = ""

    def __str__(self) -> str:
        return f"{self.text}\n  {self.formula}" if self.formula else self.text


_SYMBOLS = {
    "theta": ("The training policy: what the optimiser holds. It scored train_logprobs.", ""),
    "roll": ("The rollout policy: what sampled the responses. It scored rollout_logprobs.", ""),
    "rho": (
        "The ratio of the two probabilities of a sampled token. It is 1 where the policies agree.",
        "rho = theta/roll",
    ),
    "d": ("The log-ratio of a sampled token, in nats. Its sum over a response is log P.", "d = log theta - log roll"),
    "P": (
        "The ratio of the two probabilities of a whole response. Its mean is 1 where supports agree.",
        "P = prod rho_t",
    ),
    "S": ("The first-order term of P. With the reward it is the surrogate.", "S = sum (rho_t - 1)"),
    "W": ("What the surrogate forgets of a response. The error is the mean of R W.", "W = P - 1 - S"),
    "Phi": (
        "A divergence of one response, never negative. Its mean is kl_seq where supports agree.",
        "Phi = sum k3(rho_t)",
    ),
    "J": ("The expected reward of a policy. What training is for.", "J(pi) = E_pi[R]"),
    "L'": (
        "The surrogate: what a step optimises in place of J. It promises the change of the mean reward.",
        "L' = E[R S] = E[R sum (rho_t - 1)]",
    ),
    "error": (
        "How far the promise of the surrogate is from the true change of the mean reward. Bounds are of its size.",
        "Error = J(theta) - J(roll) - L'",
    ),
    "k1": (
        "The plain estimator of KL from a sampled token. Its mean is right, single values may be negative.",
        "k1 = -d",
    ),
    "k2": ("Half the squared log-ratio of a sampled token. Small where k1, k3 and KL are.", "k2 = d^2/2"),
    "k3": (
        "The estimator of KL that is never negative. It misses mass of theta that roll cannot sample.",
        "k3 = rho - 1 - d",
    ),
    "R": ("The reward of a response. Every bound is in units of its declared range.", "R in [a, b], usually [0, 1]"),
}

_ESTIMATES = {
    "kl_seq": (
        "KL of a whole response: how far apart the policies are, the number to watch. The error is at most this times "
        "the range of the reward, whatever the length.",
        "D = E[sum_t KL(roll||theta)(c_t)]",
    ),
    "kl_seq_k1": ("KL of a response by the plain estimator. It may be negative by noise.", "mean of -log P"),
    "kl_seq_engine": (
        "What of kl_seq is the engine alone: its weights in the arithmetic of the training, which old_logprobs are.",
        "mean of sum (log roll - log old)",
    ),
    "kl_seq_staleness": (
        "What of kl_seq the weights of the engine are behind: with kl_seq_engine it adds up to kl_seq_k1.",
        "mean of sum (log old - log theta)",
    ),
    "kl_seq_k3": ("KL of a response by the estimator that is never negative. It misses a support gap.", "mean of Phi"),
    "tv_seq": (
        "Total variation of the two laws of a whole response. No reward's mean differs by more.",
        "E[(1 - P)^+]",
    ),
    "tv_sum": (
        "Total variation of a token, summed over the response. The error is at most this, too.",
        "A = E[sum_t TV(c_t)]",
    ),
    "chi2_sum": ("chi2 of a token, summed over the response. Some rules need it.", "E[sum_t chi2(theta||roll)(c_t)]"),
    "chi2_seq": ("chi2 of a whole response. Few responses decide it, so look at it last.", "E[(P - 1)^2]"),
    "worst_case_error": (
        "The error under the worst reward there could be. An estimate from the responses.",
        "E[(1 + S - P)^+]",
    ),
    "worst_case_error_with_gap": (
        "The worst error where theta may answer what roll cannot sample. It counts the unseen mass as lost.",
        "1 - E[min(P, 1 + S)]",
    ),
    "error_above": (
        "How far the surrogate may be too low for these rewards. An estimate with a heavy tail.",
        "E[R k3(P)]",
    ),
    "error_below": (
        "How far the surrogate may be too high for these rewards, as a negative number. An estimate with a heavy tail.",
        "-E[(1 - R) k3(P)]",
    ),
    "worst_case_error_measured": (
        "An upper limit of the worst error that holds for every sample size. Wide, since ratios have no cap.",
        "upper end of 1 - E[min(P, 1 + S, c)]",
    ),
    "surrogate_gain": ("What the surrogate promises: L', estimated. In units of the reward.", "mean of R S"),
    "surrogate_gain_per_accepted": (
        "L' of the responses that a mask keeps, divided by how many are kept.",
        "E[M R S] / E[M]",
    ),
    "surrogate_gain_per_accepted_token": ("The same, divided by the tokens that are kept.", "E[M R S] / E[M len]"),
    "mean_ratio": (
        "The mean ratio of a token. Below 1, roll cannot sample what theta would.",
        "mean of rho over tokens",
    ),
    "mean_kl_token": (
        "KL of a token, averaged over all tokens. Times the length it is about kl_seq.",
        "mean of KL over tokens",
    ),
    "max_k2": ("The largest k2 of the log. A maximum of a sample is no bound on what was not sampled.", "max of d^2/2"),
    "missing_mass": (
        "Mass of theta where roll has none, by token. It comes from top-p, top-k or exact columns.",
        "1 - E[rho_t | c_t]",
    ),
    "mean_length": ("Mean number of policy tokens of a response.", "E[len]"),
    "reward": ("Mean reward of the log: that of the rollout policy.", "mean of R"),
    "acceptance": ("Share of responses that a mask keeps. Without a mask it is 1.", "E[M]"),
    "ppl_gap": ("Size of the mean log-ratio of a response: the gap of log-perplexities.", "E|mean_t d|"),
}

_GUARANTEES = {
    "improvement": (
        "How much the mean reward changes, for prompts like these. Its interval holds at its confidence for every "
        "sample size and any two policies.",
        "J(theta) - J(roll), between E[R(P-1)] and E[(1-R)(1-P)]",
    ),
    "improvement_these_prompts": ("The same, averaged over the prompts of this log only. Narrower, and says less.", ""),
    "improvement_of_steps": (
        "The change summed over the steps of a log, each of its own two policies, at all times at once. It is what a "
        "run gained only where each step draws with the policy that the step before trained.",
        "sum over k of J(theta_k) - J(roll_k)",
    ),
    "improvement_asymptotic": ("A likely range of the change. An estimate: right with many prompts only.", ""),
    "improvement_empirical_bernstein": ("The same target by another inequality, for comparison. Wider as a rule.", ""),
    "improvement_hoeffding": ("The same target by the oldest inequality, for comparison. Widest as a rule.", ""),
    "improvement_by_surrogate": (
        "The promise less the bound on its error: at least this much, at the estimates.",
        "L' - B*",
    ),
    "improvement_by_log_surrogate": ("A lower value from log-ratios, which a mask leaves alone.", "E[R log P]"),
    "improvement_under_mask": (
        "What is left of the guarantee when rejected responses are not looked at.",
        "E[M R log P] - E[(1-M) R]",
    ),
    "b_star": ("The smallest bound on the error at the estimates: the surrogate is off by at most this.", "B*"),
    "b_star_upper": ("The same at the upper ends of the estimates' intervals. What --require b_star looks at.", ""),
    "b_star_published": ("The smallest of the paper's six families. Optimistic where it takes a sample maximum.", ""),
    "claim": ("The paper's guarantee, as it would be read off this log.", "L' > B*"),
    "median_rule": (
        "The criteria of a mask at thresholds that half of the responses meet. For later steps: what is chosen on "
        "these responses voids what is guaranteed by them.",
        "",
    ),
    "kept_gain": ("What the responses that a mask keeps show.", "E[M R log P]"),
    "rejected_reward": (
        "Reward of the responses that a mask rejects. A mask must reject less than it keeps.",
        "E[(1-M) R]",
    ),
    "prompts_needed": (
        "How many prompts like these show an improvement, in four runs of five and if the gain is the one that is "
        "estimated. It is what plan says of this log.",
        "",
    ),
}

_WORDS = {
    "T": ("Horizon: the cap on the policy tokens of a response. It belongs to the run, not to the rows.", ""),
    "horizon": ("The cap on the policy tokens of a response, T.", ""),
    "at_horizon": ("Share of the responses that are as long as the cap allows.", ""),
    "responses": ("How many responses were read.", ""),
    "prompts": ("How many different prompts they answer. Intervals count prompts, not responses.", ""),
    "tokens": ("How many policy tokens were read: what the policies chose, not prompts or tool output.", ""),
    "confidence": ("How often an interval is to hold, over repetitions of everything. 0.95 unless told.", "1 - alpha"),
    "standing": (
        "What a number rests on: proved, measured, estimated or assumed. A result has the weakest of what it used.",
        "",
    ),
    "vacuous": (
        "A bound that is at least the range of the reward says nothing: no reward can move further.",
        "bound >= b - a",
    ),
    "optimistic": ("Taken at the largest value that was seen, which is no largest value there is.", ""),
    "assumptions": ("What somebody said and no log shows, with the reason.", ""),
    "hypotheses": ("What every guarantee from a log rests on; none of it can be read off the log.", ""),
    "findings": ("What is remarkable about a log: a kind, rows, and what it does to the numbers.", ""),
    "warnings": ("The findings, as sentences.", ""),
    "reasons": ("Why a number is missing.", ""),
    "withheld": ("Rules that were not evaluated, and what they lack.", ""),
    "bounds": ("Every rule at what is known, smallest first.", ""),
    "estimates": ("Numbers from the responses, each with its interval and standing.", ""),
    "mask": (
        "A rule that leaves responses (or tokens) out of the loss. It changes neither policy, so it changes no bound.",
        "",
    ),
    "verdict": ("The answer in one word, one sentence and one action.", ""),
    "schema_version": ("Which form the JSON has. It grows when a key changes its meaning.", ""),
    "noise_floor": ("Two forward passes of the same weights: the divergence that is there without any training.", ""),
    "train_policy": (
        "How theta relates to the responses: it scored them before learning from them, it learned but not from these "
        "prompts (held-out), or nobody said. A guarantee of a policy that learned from these very responses is none.",
        "before-update | held-out | unknown",
    ),
    "absolutely_continuous": (
        "Whether theta gives no mass to what roll cannot sample. Top-p and top-k break it.",
        "theta << roll",
    ),
    "reward_range": ("Smallest and largest reward that there can be. It is declared, since no log shows it.", "[a, b]"),
    "reward_sd": ("Standard deviation of the reward. Where it is known, it replaces one half of the range.", "sd(R)"),
    "response_ratio_max": (
        "Largest theta/roll of any response there can be. It is declared; a larger one in the log refutes it.",
        "P <= c",
    ),
    "reward_interval": (
        "Where the reward of the training policy lies, by that of the rollout policy and the KL of a response.",
        "kl(J(roll) || J(theta)) <= D",
    ),
    "gain": (
        "The rise of the mean reward that a plan is to show, in units of the reward. Shown means that the guaranteed "
        "interval for new prompts is above 0.",
        "J(theta) - J(roll)",
    ),
    "power": ("How often a gain that is there is to be shown, over runs of the size that is planned.", "0.8"),
    "needed": ("How many prompts show the gain of a plan, by KL of a response and responses to a prompt.", ""),
    "smallest": ("The smallest gain that so many prompts show, by KL of a response.", ""),
    "given_prompts": ("How many prompts a plan was told that there will be.", ""),
    "smallest_gain": ("The smallest gain that the prompts of a plan show.", ""),
    "largest_kl_seq": ("The largest KL of a response at which the prompts of a plan show its gain.", ""),
    "source": ("What the runs of a plan were drawn from: a log's prompts, or numbers.", ""),
    "first": ("The log that others are compared with: its estimates, or its name.", ""),
    "second": ("The log that is compared with the first.", ""),
    "difference": ("An estimate of the second log less that of the first. Prompts that both answer count as one.", ""),
    "others": ("Every further log of a comparison, each against the first.", ""),
    "prompts_of_both": ("How many prompts two logs both answer, by their ids. They are compared one by one.", ""),
    "max_k2_of_a_response": ("The largest k2 of a response, averaged. Masks look at it.", "E[max_t d^2/2]"),
    "time_uniform": ("Intervals that hold at all steps at once, so that one may look after every step.", ""),
    "promised_so_far": (
        "What the surrogate promised at the steps so far, added up. Its ends are sums of the steps' ends.",
        "sum over k of L'_k",
    ),
    "error_so_far": (
        "How far the promises of the steps so far can be off together: the sum of the worst errors of the steps.",
        "sum over k of E[(1 + S - P)^+]",
    ),
    "limit": ("The trust region of a run: the KL of a response that is not to be exceeded.", ""),
    "limit_used": (
        "How much of the limit a step uses: the KL of a response as a share of it. Above 1 it is exceeded.",
        "D / limit",
    ),
    "lost": ("The first step at which the limit could no longer be shown to hold.", ""),
}


_KINDS = {
    "misaligned": "The two columns of a response are shifted, cut or permuted against each other.",
    "swapped": "The two columns of a row belong to different responses.",
    "copied": "Both columns are the same numbers, or nearly: one is a copy, and nothing was measured.",
    "copied_old": "old_logprobs equal a column, so that engine and staleness are not told apart.",
    "censored": "Many log-ratios stand at exactly one value: they were capped, and divergences are lower limits.",
    "repeated": "The same response stands in the log more than once, whole or as the start of another.",
    "ungrouped": "Ids say nothing of which responses answer the same prompt.",
    "unequal_groups": "Prompts have unequal numbers of responses, which may depend on how they went.",
    "filtered": "Groups seem to have been left out by their rewards, as dynamic sampling does.",
    "advantages": "The rewards look like advantages: centred or normalised by group.",
    "equal_rewards": "All rewards are equal, so nothing can be learned from them.",
    "padding": "Positions that are no tokens seem to be counted as tokens.",
    "fillers": "A value that stands where nothing was computed.",
    "support_gap": "theta gives mass to what roll cannot sample, as after top-p or top-k.",
    "temperature": "One policy looks like the other at another temperature.",
    "other_base": "Log-probs look like those of another base than e.",
    "wrong_model": "One column is worse than guessing: these are not this model's scores.",
    "nothing_recomputed": "One column is zero: nothing was computed.",
    "forced_tokens": "Tokens that one policy was certain of, as templates and tool calls are.",
    "heavy_tail": "Few tokens decide the number; another log may say another one.",
    "refuted": "The ratios contradict the hypotheses: their mean is above 1 by more than chance.",
    "contradiction": "The numbers contradict each other, or what was assumed.",
    "mean_ratio": "The mean ratio is too far above 1 for any pair of policies.",
    "exact_columns": "Exact divergences disagree with the sampled log-probs.",
    "train_policy_unknown": "Nobody said whether theta learned from these responses.",
    "prompts_return": "Prompts return from earlier steps or epochs, so theta may have learned from them.",
    "mixture": "Steps, weight versions or runs are read together.",
    "rounding": "Log-probs have few digits; so much divergence is rounding.",
    "missing": "Values are missing.",
    "left_out": "Responses were left out.",
    "impossible_column": "An exact column is less than the sampled tokens alone imply.",
    "overflow": "Ratios of whole responses are beyond the floats.",
    "few_prompts": "There are few prompts, and intervals are wide or optimistic.",
    "reading": "How the file was read.",
    "horizon": "The cap on the length was taken from the log.",
    "mask": "What the mask does to this log.",
}


def _terms() -> dict[str, Term]:
    """Put all tables together: what stands in a table of the package is told from there."""
    terms = {
        name: Term(*entry) for table in (_SYMBOLS, _ESTIMATES, _GUARANTEES, _WORDS) for name, entry in table.items()
    }
    for name, field in FIELDS.items():
        terms.setdefault(name, Term(f"{_sentence(field.meaning)} An upper value.", field.symbol))
    for rule in RULES:
        terms[rule.name] = Term(f"A bound on the error: {rule.title}. From {rule.source}.", rule.latex)
    for name, (pool, token) in {**STATISTICS, **{name: ("", t) for name, t in TOKEN_STATISTICS.items()}}.items():
        whose = f"{pool} over the response" if pool else "for each token"
        terms.setdefault(name, Term(f"What a mask may look at: {TOKEN[token].meaning}, {whose}."))
    for name, metric in METRICS.items():
        over = "all tokens" if metric.of_tokens else "responses"
        note = f" {_sentence(metric.note)}" if metric.note else ""
        terms.setdefault(name, Term(f"A scalar that trainers log, a mean over {over}.{note}", metric.meaning))
    for kind, text in _KINDS.items():
        terms.setdefault(kind, Term(f"A finding about a log. {text}"))
    for standing in Standing:
        terms[standing.label] = Term(_STANDINGS[standing])
    return terms


_STANDINGS = {
    Standing.PROVED: "Mathematics: true for any two policies of which the inputs are true.",
    Standing.MEASURED: "An interval that holds at its confidence for every sample size.",
    Standing.ESTIMATED: "An estimate with an interval that is right in the limit only: no certificate.",
    Standing.ASSUMED: "Somebody said so, and the result says who and why.",
}


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


#: Name -> what it means.
GLOSSARY: Mapping[str, Term] = MappingProxyType(_terms())


def term(name: str) -> Term:
    """Return what a name means.

    Parameters
    ----------
    name : str
        As an output or an option prints it; ``--kl-seq`` is ``kl_seq``.

    Returns
    -------
    Term

    Raises
    ------
    KeyError
        For an unknown name, with the likely meant one.

    Examples
    --------
    >>> print(term("k2"))
    Half the squared log-ratio of a sampled token. Small where k1, k3 and KL are.
      k2 = d^2/2
    """
    plain = name.lstrip("-").replace("-", "_")
    for known in (name, plain):
        if known in GLOSSARY:
            return GLOSSARY[known]
    raise KeyError(unknown("name", plain, GLOSSARY))
