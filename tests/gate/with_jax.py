"""JAX for the tests that compile: on the CPU, and for TPUs that are not attached. Without JAX, they are skipped."""

from __future__ import annotations

import importlib.util
import os

import pytest

ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
for name, value in ENVIRONMENT.items():
    os.environ.setdefault(name, value)

jax = pytest.importorskip("jax")
jnp = jax.numpy

HAS_LIBTPU = importlib.util.find_spec("libtpu") is not None
tpu = pytest.mark.skipif(not HAS_LIBTPU, reason="libtpu is not installed")
