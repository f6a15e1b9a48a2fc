"""A program that knows nothing of cudaguard. Run it in three ways.

python examples/door_unchanged.py                  read back: False
CUDAGUARD=fix python examples/door_unchanged.py    read back: True
cudaguard run examples/door_unchanged.py           read back: True
"""

import decord  # noqa: F401  # makes OpenCV fail below, unless guarded
import cv2
import numpy as np

picture = np.zeros((32, 32, 3), np.uint8)
_, png = cv2.imencode(".png", picture)
print("read back:", cv2.imdecode(png, cv2.IMREAD_COLOR) is not None)
