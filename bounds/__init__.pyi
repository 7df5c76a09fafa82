"""The public names, for type checkers and editors; written by ``python tests/public_stub.py``."""

from collections.abc import Mapping

import numpy.typing as npt

from bounds import divergence as divergence
from bounds import figures as figures
from bounds import proof as proof
from bounds.certificate.certificate import Certificate as Certificate
from bounds.certificate.certify import certify as certify
from bounds.certificate.compare import compare as compare
from bounds.figures.plots import plot_bounds as plot_bounds
from bounds.figures.plots import plot_by_position as plot_by_position
from bounds.figures.plots import plot_comparison as plot_comparison
from bounds.figures.plots import plot_ladder as plot_ladder
from bounds.figures.plots import plot_masks as plot_masks
from bounds.figures.plots import plot_over_time as plot_over_time
from bounds.figures.plots import plot_plan as plot_plan
from bounds.figures.plots import plot_verdict as plot_verdict
from bounds.logs import example_traces as example_traces
from bounds.logs import open_log as open_log
from bounds.logs.batch import TraceError as TraceError
from bounds.logs.log import Paths
from bounds.logs.traces import TraceSet as TraceSet
from bounds.masks.mask import Mask as Mask
from bounds.questions.by_position import by_position as by_position
from bounds.questions.explain import explain as explain
from bounds.questions.mask_study import MaskStudy as MaskStudy
from bounds.questions.mask_study import mask_study as mask_study
from bounds.questions.metrics import metrics as metrics
from bounds.questions.objectives import objectives as objectives
from bounds.questions.over_time import over_time as over_time
from bounds.questions.plan import plan as plan
from bounds.questions.trainer_metrics import trainer_metrics as trainer_metrics
from bounds.results import Interval as Interval
from bounds.results import Standing as Standing
from bounds.rules.bound import BoundTable as BoundTable
from bounds.rules.largest import trust_regions as trust_regions
from bounds.rules.profile import Profile as Profile
from bounds.rules.rule import Rule as Rule
from bounds.rules.unified import RULES as RULES
from bounds.rules.unified import reward_interval as reward_interval
from bounds.rules.unified import rule as rule

__version__: str

def largest(
    quantity: str,
    target: float,
    *,
    published: bool = ...,
    T: int = ...,
    delta: float | None = ...,
    epsilon: float | None = ...,
    chi2_max: float | None = ...,
    kl_seq: float | None = ...,
    tv_seq: float | None = ...,
    tv_sum: float | None = ...,
    chi2_sum: float | None = ...,
    mean_length: float | None = ...,
    mean_tv: npt.ArrayLike | None = ...,
    mean_kl: npt.ArrayLike | None = ...,
    mean_chi2: npt.ArrayLike | None = ...,
    max_tv: npt.ArrayLike | None = ...,
    max_kl: npt.ArrayLike | None = ...,
    max_chi2: npt.ArrayLike | None = ...,
    log_ratio_max: float | None = ...,
    support_gap: float | None = ...,
    mean_reward: float | tuple[float, float] | None = ...,
    reward_sd_within: float | None = ...,
    reward_range: tuple[float, float] | tuple[tuple[float, float], ...] = ...,
    absolutely_continuous: bool = ...,
) -> float | int: ...
def read_traces(
    paths: Paths,
    *,
    format: str = ...,
    horizon: int | None = ...,
    train: Paths | None = ...,
    group_size: int | None = ...,
    reward_range: tuple[float, float] = ...,
    logprob_dtype: str = ...,
    on_missing: str = ...,
    leave_out: tuple[str, ...] = ...,
    train_policy: str | None = ...,
    max_line: float = ...,
    max_ratio: float = ...,
    drop_incomplete: bool = ...,
) -> TraceSet: ...
def unified(
    profile: Profile | None = ...,
    *,
    standing: Mapping[str, Standing] | None = ...,
    T: int = ...,
    delta: float | None = ...,
    epsilon: float | None = ...,
    chi2_max: float | None = ...,
    kl_seq: float | None = ...,
    tv_seq: float | None = ...,
    tv_sum: float | None = ...,
    chi2_sum: float | None = ...,
    mean_length: float | None = ...,
    mean_tv: npt.ArrayLike | None = ...,
    mean_kl: npt.ArrayLike | None = ...,
    mean_chi2: npt.ArrayLike | None = ...,
    max_tv: npt.ArrayLike | None = ...,
    max_kl: npt.ArrayLike | None = ...,
    max_chi2: npt.ArrayLike | None = ...,
    log_ratio_max: float | None = ...,
    support_gap: float | None = ...,
    mean_reward: float | tuple[float, float] | None = ...,
    reward_sd_within: float | None = ...,
    reward_range: tuple[float, float] | tuple[tuple[float, float], ...] = ...,
    absolutely_continuous: bool = ...,
) -> BoundTable: ...
