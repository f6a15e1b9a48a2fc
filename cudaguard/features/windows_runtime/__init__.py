"""Windows: an old ``msvcp140.dll`` of one package breaks the next. Begin with `repair`."""
