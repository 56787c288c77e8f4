"""Elections: they select which of a job's drivers runs it, while the others stand by until that driver ends (E7).

An election only decides who starts. The fence in the store (`storage.leadership`) separates two drivers that both
believe they lead.
"""
