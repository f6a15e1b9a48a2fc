"""The guard for the whole program: install it before anything else is imported."""

import cudaguard

cudaguard.install()

import decord  # noqa: F401  # would make OpenCV fail below
import cv2
import numpy as np

picture = np.zeros((32, 32, 3), np.uint8)
_, png = cv2.imencode(".png", picture)
print("read back:", cv2.imdecode(png, cv2.IMREAD_COLOR) is not None)
print(cudaguard.status())
