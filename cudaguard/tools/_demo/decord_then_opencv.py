"""Import decord, then let OpenCV write a PNG and read it back. Contains no cudaguard."""

import sys

import decord  # noqa: F401  # importing it first is all that it takes  # isort: skip
import cv2  # isort: skip
import numpy as np  # isort: skip

image = (np.arange(64 * 64 * 3) % 251).astype(np.uint8).reshape(64, 64, 3)
_, png = cv2.imencode(".png", image)
decoded = cv2.imdecode(png, cv2.IMREAD_COLOR)
if decoded is None:
    print("cv2.imdecode returned None: OpenCV cannot read the PNG that it has just written")
    sys.exit(1)
if not np.array_equal(decoded, image):
    print("cv2.imdecode returned another picture")
    sys.exit(1)
print("cv2.imdecode returned the same picture, 64 x 64 pixels")
