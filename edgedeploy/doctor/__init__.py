"""Examines this machine and a board: can networks be built, pushed and run? If not, what is to be done?"""
