"""What models and servers select while they run: a hook for `transformers`, a recorder for servers.

`capture_selections(model)` watches the indexers of a model; `Recorder` copies what a server's top-k
returned into buffers that CUDA graphs can write. Both end in a file of `selections.capture_files`.
"""

from .models import capture_selections as capture_selections
from .server import Recorder as Recorder
