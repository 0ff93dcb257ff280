"""Exports of tables to files and Delta, and their verification."""
