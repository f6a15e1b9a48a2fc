"""What is installed in environments that several incidents share.

Equal pins are one environment, made once (see `tests/kept.py`).
"""

OURS = ("packaging", "importlib-metadata")  # what cudaguard itself imports there
TORCH = ("torch==2.13.0", "decord==0.6.0", "ninja==1.13.0", "numpy", "setuptools", *OURS)
TENSORFLOW = ("tensorflow-cpu==2.20.0", "triton==3.9.0", *OURS)
SERVERS = ("joblib==1.6.0", "gunicorn==27.0.1", "uvicorn==0.54.0", "celery==5.7.0", *OURS)
