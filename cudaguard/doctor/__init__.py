"""The checks of `cudaguard doctor`, which put together what is read, decided and said."""
