"""MediaPipe's own points of images, as JSON: a program of its own, run by a Python that has MediaPipe.

python mediapipe_points.py DEMO FILM FILE...: a list for each file of the results in it, each an object with `points`
(x and y in pixels, depth in pixels), `visibility` and `label`. FILM is 1 if the files follow each other in time.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def solution(demo: str, film: bool) -> Any:
    """The solution of a demo, and how its results are called."""
    import mediapipe

    solutions = mediapipe.solutions
    if demo == "hands":
        return solutions.hands.Hands(static_image_mode=not film, max_num_hands=2 if film else 4), "multi_hand_landmarks"
    if demo == "pose":
        options = {"static_image_mode": not film, "smooth_landmarks": False}
        return solutions.pose.Pose(**options), "pose_landmarks"
    options = {"static_image_mode": not film, "refine_landmarks": demo == "face-mesh-attention"}
    return solutions.face_mesh.FaceMesh(max_num_faces=1 if film else 4, **options), "multi_face_landmarks"


def results(demo: str, film: bool, files: list[str]) -> list[list[dict[str, Any]]]:
    import cv2

    found, network = [], None
    for file in files:
        if network is None or not film:
            network, name = solution(demo, film)
        image = cv2.cvtColor(cv2.imread(file), cv2.COLOR_BGR2RGB)
        height, width = image.shape[:2]
        seen = network.process(image)
        sets = getattr(seen, name) or []
        labels = [each.classification[0].label for each in getattr(seen, "multi_handedness", None) or []]
        found.append(
            [
                {
                    "points": [[each.x * width, each.y * height, each.z * width] for each in points.landmark],
                    "visibility": [each.visibility for each in points.landmark],
                    "label": labels[index] if labels else None,
                }
                for index, points in enumerate([sets] if demo == "pose" and sets else sets)
            ]
        )
    return found


if __name__ == "__main__":
    demo_name, is_film, *images = sys.argv[1:]
    print(json.dumps(results(demo_name, is_film == "1", images)))
