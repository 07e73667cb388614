"""Advise what to do so that less memory must fit, with bounds of what each intervention saves.

`what_if` computes what must fit after a change, an `intervention` is what a rule proposes, and `plan` runs all rules,
ranks what they propose and chooses enough of it for a budget.

Rules about arguments, outputs and layouts look at buffers: `donations`, `argument_types`, `sharding`, `layouts`,
`collectives` and `tuples`. The others look at what the forward pass keeps (`activations`, in loops `stacks`, by layer
`layers`): `rematerialization`, `element_types` (with `promotions`, which finds out what widens them), `logits`,
`attention`, `loop_results`, `carried`, `selections`, `sample_gradients`, `table_gradients` and `batches`. Their bounds
are from `bounds`.
"""

from .plan import ADVICE_KINDS, TRY, Plan, advise, enough_alone, plan_advice

__all__ = ["ADVICE_KINDS", "TRY", "Plan", "advise", "enough_alone", "plan_advice"]
