from hypothesis import settings

# A busy machine is no defect of the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
