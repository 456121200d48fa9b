"""What the frontend, ai-dynamo 1.4.2, makes of ``tools`` and ``tool_choice``, word for word.

Taken down from what an engine was given for three tools: the first has definitions, the last no parameters.
"""

from __future__ import annotations

import json
from typing import Any

REQUIRED: dict[str, Any] = json.loads(
    '{"type":"array","minItems":1,"items":{"type":"object","anyOf":['
    '{"properties":{"name":{"type":"string","enum":["weather"]},"parameters":{"type":"object",'
    '"properties":{"city":{"type":"string","maxLength":12},"unit":{"$ref":"#/$defs/Unit"}},'
    '"required":["city"],"additionalProperties":false}},"required":["name","parameters"]},'
    '{"properties":{"name":{"type":"string","enum":["add_numbers"]},"parameters":{"type":"object",'
    '"properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}},'
    '"required":["name","parameters"]},'
    '{"properties":{"name":{"type":"string","enum":["now"]},"parameters":{"type":"object",'
    '"properties":{}}},"required":["name","parameters"]}]},'
    '"$defs":{"Unit":{"type":"string","enum":["C","F"]}}}'
)
NAMED: dict[str, Any] = json.loads(
    '{"type":"object","properties":{"city":{"type":"string","maxLength":12},"unit":{"$ref":"#/$defs/Unit"}},'
    '"required":["city"],"additionalProperties":false,"$defs":{"Unit":{"type":"string","enum":["C","F"]}}}'
)
NAMED_WITHOUT_PARAMETERS: dict[str, Any] = json.loads('{"type":"object","properties":{}}')
TOOL_SCHEMAS = (REQUIRED, NAMED, NAMED_WITHOUT_PARAMETERS)
