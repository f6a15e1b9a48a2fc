"""What several incidents share."""

from .cuda_packages import cuda_packages as cuda_packages
from .cuda_packages import run_cuda as run_cuda
from .cuda_torch import cuda_torch as cuda_torch
